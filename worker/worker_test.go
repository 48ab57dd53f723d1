package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

func TestRun_mistakes(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, nil }
	for _, c := range []struct {
		name     string
		cfg      Config
		register func(*Worker)
		want     string
		invalid  bool
	}{
		{name: "no handler", register: func(*Worker) {}, want: "no handler"},
		{name: "empty kind", register: func(w *Worker) { Handle(w, "", nothing) }, want: "kind is empty"},
		{name: "nil handler", register: func(w *Worker) { Handle[int, int](w, "k", nil) }, want: `the kind "k" is nil`},
		{name: "kind twice", register: func(w *Worker) { Handle(w, "k", nothing); Handle(w, "k", nothing) }, want: `the kind "k" has two`},
		{name: "short lease", cfg: Config{LeaseTTL: time.Millisecond}, want: "LeaseTTL", invalid: true},
		{name: "long lease", cfg: Config{LeaseTTL: 2 * engine.MaxLeaseTTL}, want: "LeaseTTL", invalid: true},
		{name: "large batch", cfg: Config{FetchBatch: engine.MaxBatch + 1}, want: "FetchBatch", invalid: true},
		{name: "negative", cfg: Config{Concurrency: -1}, want: "Concurrency", invalid: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := &Worker{handlers: make(map[string]handler)}
			w.configure(newFakeEngine(), c.cfg)
			if c.register == nil {
				c.register = func(w *Worker) { Handle(w, "k", nothing) }
			}
			c.register(w)
			err := w.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, engine.ErrInvalidInput) != c.invalid {
				t.Errorf("Run: %v, want %q", err, c.want)
			}
		})
	}
	if err := New(nil, Config{}).Run(t.Context()); !errors.Is(err, engine.ErrInvalidInput) {
		t.Errorf("without an engine: %v, want invalid input", err)
	}
}

func TestRun_once_at_a_time(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := newFakeEngine()
		w := &Worker{handlers: make(map[string]handler)}
		w.configure(eng, Config{})
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

func TestRun_unfit_database(t *testing.T) {
	t.Parallel()
	eng := newFakeEngine()
	eng.prepareErr = engine.ErrNotMigrated
	w := &Worker{handlers: make(map[string]handler)}
	w.configure(eng, Config{})
	quickAndSlow(w, eng)
	if err := w.Run(t.Context()); !errors.Is(err, engine.ErrNotMigrated) {
		t.Errorf("run: %v, want ErrNotMigrated", err)
	}
}

func TestConfig_defaults(t *testing.T) {
	t.Parallel()
	cfg, err := Config{Lanes: []id.LaneID{"b", "a", "b"}}.complete()
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

func TestDrain_lets_handlers_finish(t *testing.T) {
	bothWays(t, Config{Concurrency: 1}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putMany(3, "slow")
		b.tell()
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

func TestDrain_cancels_after_the_timeout(t *testing.T) {
	bothWays(t, Config{DrainTimeout: 7 * time.Second, LeaseTTL: 3 * time.Second}, untilCancelled, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "long")
		b.tell()
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

// What a handler says explicitly counts also when it was cancelled.
func TestDrain_verdicts(t *testing.T) {
	bothWays(t, Config{DrainTimeout: time.Second}, func(w *Worker, _ *fakeEngine) {
		until := func(err error) func(context.Context, Job[struct{}]) (string, error) {
			return func(ctx context.Context, _ Job[struct{}]) (string, error) {
				<-ctx.Done()
				return "done", err
			}
		}
		Handle(w, "success", until(nil))
		Handle(w, "permanent", until(Permanent(errors.New("no"))))
		Handle(w, "plain", until(errors.New("no")))
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, work("success"), work("permanent"), work("plain"))
		b.tell()
		b.stop()
		if items(b.seen().done) != 1 || items(b.seen().failed) != 1 || items(b.seen().back) != 1 {
			t.Fatalf("%d completed, %d failed, %d given back, want one each", items(b.seen().done), items(b.seen().failed), items(b.seen().back))
		}
		if class := b.seen().failed[0].items[0].Failure.Class; class != policy.Permanent {
			t.Errorf("failed as %q, want permanent", class)
		}
	})
}
