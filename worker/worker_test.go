package worker

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

func TestRunRefusesMistakes(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, nil }
	for _, c := range []struct {
		name     string
		register func(*Worker)
		want     string
	}{
		{"no handler", func(*Worker) {}, "handlers: none is registered"},
		{"empty kind", func(w *Worker) { on(w, "", nothing) }, "Kind.Name: is empty"},
		{"kind's lane", func(w *Worker) {
			Handle(w, engine.Kind[struct{}, struct{}]{Name: "k", Lane: "a\nb"}, nothing)
		}, "Kind.Lane"},
		{"nil handler", func(w *Worker) { on[int, int](w, "k", nil) }, `handler of the kind "k": is nil`},
		{"kind twice", func(w *Worker) { on(w, "k", nothing); on(w, "k", nothing) }, `handler of the kind "k": is registered twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := onFake(t, newFakeEngine(), Config{})
			c.register(w)
			err := w.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, fferr.ErrInvalidInput) {
				t.Errorf("Run: %v, want %q", err, c.want)
			}
		})
	}
}

func TestNewRefusesMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		field string
		cfg   Config
	}{
		{"Config.Lanes", Config{Lanes: []Lane{{Name: "fine"}, {Name: "a\nb"}}}},
		{"Config.Lanes", Config{Lanes: []Lane{{Name: ""}}}},
		{"Config.Lanes", Config{Lanes: []Lane{{Name: "a"}, {Name: "a", Concurrency: 1}}}},
		{"Config.Lanes", Config{Lanes: []Lane{{Name: "a", Concurrency: -1}}}},
		{"Config.Lanes", Config{Lanes: []Lane{{Name: "a", Concurrency: MaxConcurrency + 1}}}},
		{"Config.Lanes", Config{Concurrency: 1, Lanes: []Lane{{Name: "a", Concurrency: MaxConcurrency}, {Name: "b"}}}},
		{"Config.Concurrency", Config{Concurrency: 1, Lanes: []Lane{{Name: "a", Concurrency: 1}}}},
		{"Config.Capabilities", Config{Capabilities: []string{"a,b"}}},
		{"Config.Worker", Config{Worker: "a\nb"}},
		{"Config.Instance", Config{Instance: "a\nb"}},
		{"Config.Concurrency", Config{Concurrency: -1}},
		{"Config.Concurrency", Config{Concurrency: MaxConcurrency + 1}},
		{"Config.Concurrency", Config{Concurrency: math.MaxInt}},
		{"Config.LeaseTTL", Config{LeaseTTL: time.Millisecond}},
		{"Config.LeaseTTL", Config{LeaseTTL: 2 * engine.MaxLeaseTTL}},
		{"Config.DrainTimeout", Config{DrainTimeout: -1}},
		{"Config.PollInterval", Config{PollInterval: -1}},
		{"Config.FetchBatch", Config{FetchBatch: engine.MaxBatch + 1}},
		{"Config.SettleBatch", Config{SettleBatch: engine.MaxBatch + 1}},
	} {
		_, err := newWorker(newFakeEngine(), c.cfg)
		input, ok := errors.AsType[*fferr.InputError](err)
		if !ok || input.Field != c.field || !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%+v: %v, want %s refused", c.cfg, err, c.field)
		}
	}
	_, err := newWorker(newFakeEngine(), Config{Concurrency: 20_000})
	if want := "Config.Concurrency: is 20000, limit 10000"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if _, err := newWorker(newFakeEngine(), Config{Concurrency: MaxConcurrency}); err != nil {
		t.Errorf("the largest concurrency: %v", err)
	}
	if _, err := New(nil, Config{}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("without an engine: %v, want invalid input", err)
	}
}

// A worker without configured lanes uses the lanes of its kinds.
func TestRunUsesTheLanesOfItsKinds(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, nil }
	for _, c := range []struct {
		given, want []id.LaneID
	}{
		{nil, []id.LaneID{engine.DefaultLane, "images", "mail"}},
		{[]id.LaneID{"z", "a"}, []id.LaneID{"a", "z"}},
	} {
		w := onFake(t, newFakeEngine(), Config{Lanes: lanesNamed(c.given...)})
		for kind, lane := range map[string]id.LaneID{"a": "mail", "b": "", "c": "images", "d": "mail"} {
			Handle(w, engine.Kind[struct{}, struct{}]{Name: kind, Lane: lane}, nothing)
		}
		kinds, err := w.handledKinds()
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.newRun(t.Context(), kinds)
		if err != nil {
			t.Fatal(err)
		}
		r.disconnect()
		if !slices.Equal(r.laneNames, c.want) || len(r.lanes) != len(c.want) {
			t.Errorf("given %q the worker takes from %q, want %q", c.given, r.laneNames, c.want)
		}
	}
}

func TestRunRefusesASecondRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := newFakeEngine()
		w := onFake(t, eng, Config{})
		quickAndSlow(w, eng)
		for range 2 { // one after the other is fine
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error)
			go func() { ran <- w.Run(ctx) }()
			synctest.Wait()
			if err := w.Run(ctx); !errors.Is(err, ErrRunning) {
				t.Errorf("second run: %v, want ErrRunning", err)
			}
			cancel()
			if err := <-ran; err != nil {
				t.Errorf("run: %v", err)
			}
		}
	})
}

func TestRunRefusesAnUnfitDatabase(t *testing.T) {
	t.Parallel()
	eng := newFakeEngine()
	eng.prepareErr = fferr.ErrNotMigrated
	w := onFake(t, eng, Config{})
	quickAndSlow(w, eng)
	if err := w.Run(t.Context()); !errors.Is(err, fferr.ErrNotMigrated) {
		t.Errorf("run: %v, want ErrNotMigrated", err)
	}
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := Config{Lanes: []Lane{{Name: "b"}, {Name: "a"}}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Lanes) != 2 || cfg.LeaseTTL != DefaultLeaseTTL || cfg.Concurrency != DefaultConcurrency {
		t.Errorf("completed to %+v", cfg)
	}
	if err := cfg.Instance.Validate(); err != nil {
		t.Error(err)
	}
	again, err := Config{}.complete()
	if err != nil || again.Instance == cfg.Instance {
		t.Errorf("two workers of a process are both %q (%v)", again.Instance, err)
	}
}

func TestDrainLetsHandlersFinish(t *testing.T) {
	bothWays(t, Config{Concurrency: 1}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putMany(3, "slow")
		b.wakeLane()
		b.pass(500 * time.Millisecond)
		began := time.Now()
		b.stop()
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("drained in %v, want the half second that the running handler took", took)
		}
		if items(b.seen().done) != 1 || items(b.seen().failed) != 0 {
			t.Errorf("%d completed and %d failed, want 1 and 0", items(b.seen().done), items(b.seen().failed))
		}
		if left := b.left(engine.DefaultLane) + items(b.seen().back); left != 2 {
			t.Errorf("%d left or given back, want 2", left)
		}
	})
}

func TestDrainCancelsAfterTheTimeout(t *testing.T) {
	bothWays(t, Config{DrainTimeout: 7 * time.Second, LeaseTTL: 3 * time.Second}, untilCancelled, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "long")
		b.wakeLane()
		began := time.Now()
		b.stop()
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("drained in %v, want 7s", took)
		}
		if cause := <-b.eng.causes; !errors.Is(cause, ErrShutdown) {
			t.Errorf("cause %v, want ErrShutdown", cause)
		}
		if items(b.seen().back) != 1 || items(b.seen().failed) != 0 {
			t.Errorf("%d given back and %d failed, want 1 and 0", items(b.seen().back), items(b.seen().failed))
		}
		if len(b.seen().renewed) != 6 && len(b.seen().renewed) != 7 {
			t.Errorf("%d renewals while draining, want one a second", len(b.seen().renewed))
		}
	})
}

func TestDrainCancelsAClaim(t *testing.T) {
	inBubble(t, Config{DrainTimeout: time.Second}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimTakes = time.Hour
	}, func(t *testing.T, b *bubble) {
		began := time.Now()
		b.stop()
		if took := time.Since(began); took != time.Second {
			t.Errorf("drained in %v, want 1s", took)
		}
	})
}

// An explicit result of a handler counts even if it was cancelled.
func TestDrainHonoursExplicitVerdicts(t *testing.T) {
	bothWays(t, Config{DrainTimeout: time.Second}, func(w *Worker, _ *fakeEngine) {
		until := func(err error) func(context.Context, Job[struct{}]) (string, error) {
			return func(ctx context.Context, _ Job[struct{}]) (string, error) {
				<-ctx.Done()
				return "done", err
			}
		}
		on(w, "success", until(nil))
		on(w, "permanent", until(Permanent(errors.New("no"))))
		on(w, "plain", until(errors.New("no")))
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, work("success"), work("permanent"), work("plain"))
		b.wakeLane()
		b.stop()
		if items(b.seen().done) != 1 || items(b.seen().failed) != 1 || items(b.seen().back) != 1 {
			t.Fatalf("%d completed, %d failed, %d given back, want one each", items(b.seen().done), items(b.seen().failed), items(b.seen().back))
		}
		if class := b.seen().failed[0].items[0].Failure.Class; class != policy.Permanent {
			t.Errorf("failed as %q, want permanent", class)
		}
	})
}
