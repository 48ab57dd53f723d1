package worker

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
)

type size struct{ Width int }

// register returns the handler that Handle makes from fn.
func register[In, Out any](t *testing.T, fn func(context.Context, Job[In]) (Out, error)) func(payload string) ([]byte, error) {
	t.Helper()
	w := onFake(t, newFakeEngine(), Config{})
	on(w, "k", fn)
	kinds, err := w.handledKinds()
	if err != nil {
		t.Fatal(err)
	}
	return func(payload string) ([]byte, error) {
		var bytes []byte
		if payload != "" {
			bytes = []byte(payload)
		}
		return kinds.handlers["k"](t.Context(), &engine.Claimed{Kind: "k", Payload: bytes}, time.Now())
	}
}

func TestHandleCodec(t *testing.T) {
	t.Parallel()
	object := register(t, func(_ context.Context, job Job[size]) (size, error) { return size{job.Args.Width * 2}, nil })
	raw := register(t, func(_ context.Context, job Job[[]byte]) ([]byte, error) { return job.Args, nil })
	message := register(t, func(_ context.Context, job Job[json.RawMessage]) (json.RawMessage, error) { return job.Args, nil })
	nothing := register(t, func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
	pointer := register(t, func(_ context.Context, job Job[*size]) (*size, error) { return job.Args, nil })
	for _, c := range []struct {
		name    string
		handle  func(string) ([]byte, error)
		payload string
		want    string
		wantNil bool
	}{
		{"object", object, `{"Width":4}`, `{"Width":8}`, false},
		{"object without a payload", object, ``, `{"Width":0}`, false},
		{"raw", raw, "\x00\xff", "\x00\xff", false},
		{"raw without a payload", raw, ``, ``, true},
		{"raw message", message, `[1, 2]`, `[1, 2]`, false},
		{"nothing", nothing, "not JSON", ``, true},
		{"pointer", pointer, `{"Width":4}`, `{"Width":4}`, false},
	} {
		got, err := c.handle(c.payload)
		if err != nil || string(got) != c.want || (got == nil) != c.wantNil {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestHandleFailsPermanentlyOnCodecErrors(t *testing.T) {
	t.Parallel()
	unreadable := register(t, func(context.Context, Job[size]) (size, error) { return size{}, errors.New("was called") })
	unwritable := register(t, func(context.Context, Job[size]) (func(), error) { return func() {}, nil })
	for _, c := range []struct {
		category string
		handle   func(string) ([]byte, error)
		payload  string
	}{
		{"payload", unreadable, `{"Width":"wide"}`},
		{"payload", unreadable, `{`},
		{"result", unwritable, `{}`},
	} {
		_, err := c.handle(c.payload)
		got := failureOf(err)
		if got.Class != policy.Permanent || got.Category != c.category || !strings.Contains(got.Message, "json: ") && c.payload != "{" {
			t.Errorf("%s: %+v, want a permanent failure of the %s, and the codec's words", c.payload, got, c.category)
		}
	}
}

func TestJobUpstreams(t *testing.T) {
	t.Parallel()
	handle := register(t, func(ctx context.Context, job Job[struct{}]) (int, error) {
		upstreams, err := job.Upstreams(ctx)
		if err != nil {
			return 0, err
		}
		sum := 0
		for _, u := range upstreams {
			s, err := engine.Kind[struct{}, size]{Name: "upstream"}.ResultOf(u)
			if err != nil {
				return 0, err
			}
			sum += s.Width
		}
		return sum, job.Progress(ctx, 50, "half")
	})
	if got, err := handle(""); err != nil || string(got) != "7" {
		t.Errorf("%s, %v, want 7", got, err)
	}
}

func TestJobCanBeBuiltInTests(t *testing.T) {
	t.Parallel()
	job := Job[size]{Args: size{1}}
	if _, err := job.Upstreams(t.Context()); err == nil {
		t.Error("Upstreams answered without an engine")
	}
	if err := job.Progress(t.Context(), 1, ""); err == nil {
		t.Error("Progress answered without an engine")
	}
}

// A test gives a handler the signals that it waits for.
func TestJobForTest(t *testing.T) {
	t.Parallel()
	approved, paid := engine.Signal[string]{Name: "approved"}, engine.Signal[int]{Name: "paid"}
	handle := func(ctx context.Context, job Job[size]) (string, error) {
		by, err := approved.Await(ctx, job, engine.Wait{})
		if err != nil {
			return "", err
		}
		amount, err := paid.Await(ctx, job, engine.Wait{Timeout: time.Hour})
		if errors.Is(err, fferr.ErrWaitTimeout) {
			return by + ": not paid", nil
		}
		return by + ": " + strconv.Itoa(amount), err
	}
	one := func(name, payload string) []engine.ReceivedSignal {
		return []engine.ReceivedSignal{{Name: name, Payload: []byte(payload)}}
	}
	cases := []struct {
		name string
		job  Job[size]
		want string
		err  error
	}{
		{"a literal", Job[size]{Args: size{1}}, "", fferr.ErrAwaiting},
		{"no signal", JobForTest(size{1}), "", fferr.ErrAwaiting},
		{"one signal", JobForTest(size{1}, one("approved", `"ada"`)), "", fferr.ErrAwaiting},
		{"both", JobForTest(size{1}, one("approved", `"ada"`), one("paid", "5")), "ada: 5", nil},
		{"a timeout", JobForTest(size{1}, one("approved", `"ada"`), nil), "ada: not paid", nil},
	}
	for _, c := range cases {
		if got, err := handle(t.Context(), c.job); !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%s: %q, %v, want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
}

func TestFailureOf(t *testing.T) {
	t.Parallel()
	plain := errors.New("broken")
	for _, c := range []struct {
		name string
		err  error
		want engine.Failure
	}{
		{"plain", plain, engine.Failure{Message: "broken", Class: policy.Transient}},
		{"permanent", Permanent(plain), engine.Failure{Message: "broken", Class: policy.Permanent}},
		{"wrapped", errors.Join(Permanent(plain)), engine.Failure{Message: "broken", Class: policy.Permanent}},
		{"class and category", &Fail{Class: policy.TimedOut, Category: "upstream", Err: plain}, engine.Failure{Message: "broken", Class: policy.TimedOut, Category: "upstream"}},
		{"category alone", &Fail{Category: "busy"}, engine.Failure{Message: "busy failure", Class: policy.Transient, Category: "busy"}},
		{"unknown class", &Fail{Class: "?", Err: plain}, engine.Failure{Message: "broken", Class: policy.Transient}},
		{"not storable", errors.New("a\x00b\xffc"), engine.Failure{Message: "a\uFFFDb\uFFFDc", Class: policy.Transient}},
	} {
		if got := failureOf(c.err); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if Permanent(nil) != nil {
		t.Error("Permanent(nil) is not nil")
	}
	if got := storable(strings.Repeat("ü", maxMessage), 101); got != strings.Repeat("ü", 50) {
		t.Errorf("cut to %q, want whole runes", got)
	}
}

func TestWorkerSurvivesHandlerPanics(t *testing.T) {
	bothWays(t, Config{Concurrency: 2}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		on(w, "panics", func(context.Context, Job[size]) (size, error) { panic("at the disco") })
		on(w, "exits", func(context.Context, Job[size]) (size, error) { runtime.Goexit(); return size{}, nil })
		on(w, "error panics", func(context.Context, Job[size]) (size, error) { return size{}, (*badError)(nil) })
	}, func(t *testing.T, b *bubble) {
		for range 3 {
			b.eng.put(engine.DefaultLane, work("panics"), work("exits"), work("error panics"), work("quick"))
		}
		b.wakeLane()
		b.pass(time.Second)
		if items(b.seen().failed) != 9 || items(b.seen().done) != 3 {
			t.Fatalf("%d failed and %d completed, want 9 and 3", items(b.seen().failed), items(b.seen().done))
		}
		messages, details := make(map[string]string), make(map[string]string)
		for _, c := range b.seen().failed {
			for _, f := range c.items {
				messages[f.Failure.Category] += f.Failure.Message
				details[f.Failure.Category] += f.Failure.Detail
			}
		}
		if m := messages["panic"]; !strings.Contains(m, "at the disco") || strings.Contains(m, "handler_test.go") {
			t.Errorf("the message of a panic is %q, want its value alone", m)
		}
		if d := details["panic"]; !strings.Contains(d, "handler_test.go") {
			t.Errorf("the detail of a panic is %q, want its stack", d)
		}
		if m := messages[""]; !strings.Contains(m, "Goexit") {
			t.Errorf("an ended goroutine is stored as %q", m)
		}
		b.stop()
		if !strings.Contains(b.log.String(), "handler panicked") {
			t.Errorf("the panic is not in the log: %s", b.log)
		}
	})
}

type badError struct{ text string }

func (e *badError) Error() string { return e.text }

func TestHandlerPayloadIsNotLogged(t *testing.T) {
	inBubble(t, Config{}, func(w *Worker, _ *fakeEngine) {
		on(w, "k", func(context.Context, Job[struct{ N int8 }]) (size, error) { return size{}, nil })
	}, func(t *testing.T, b *bubble) {
		secret := work("k")
		secret.Payload = []byte(`{"N": 4929123412341234}`)
		b.eng.put(engine.DefaultLane, secret)
		b.wakeLane()
		b.stop()
		if log := b.log.String(); !strings.Contains(log, "attempt failed") || strings.Contains(log, "4929123412341234") {
			t.Errorf("log: %s", log)
		}
	})
}

// A panic in an observer does not end the process or drop the reports of the rest of its batch.
func TestWorkerSurvivesObserverPanics(t *testing.T) {
	for name, batch := range map[string]int{"in batches": 0, "one by one": 1} {
		t.Run(name, func(t *testing.T) {
			var reported atomic.Int64
			cfg := Config{Concurrency: 2, FetchBatch: batch, SettleBatch: batch, Observer: hookFunc(func(o Report) {
				reported.Add(1)
				if o.Settlement == Completed {
					panic("telemetry is down")
				}
			})}
			inBubble(t, cfg, func(w *Worker, eng *fakeEngine) {
				quickAndSlow(w, eng)
				on(w, "fails", func(context.Context, Job[size]) (size, error) { return size{}, errors.New("no") })
			}, func(t *testing.T, b *bubble) {
				b.eng.put(engine.DefaultLane, work("quick"), work("fails"), work("quick"))
				b.wakeLane()
				b.pass(time.Second)
				if items(b.seen().done) != 2 || items(b.seen().failed) != 1 || reported.Load() != 3 {
					t.Errorf("%d completed, %d failed, %d reported, want 2, 1 and 3", items(b.seen().done), items(b.seen().failed), reported.Load())
				}
				if got := b.ObserverPanics(); got != 2 {
					t.Errorf("%d panics are counted, want 2", got)
				}
				b.stop()
				if log := b.log.String(); strings.Count(log, "observer panicked") != 2 || !strings.Contains(log, "telemetry is down") {
					t.Errorf("the log has %s", log)
				}
			})
		})
	}
}

// Work of a kind without a handler stays in the lane, before and after other work.
func TestWorkerClaimsOnlyKindsWithHandlers(t *testing.T) {
	bothWays(t, Config{}, quickAndSlow, func(t *testing.T, b *bubble) {
		unheardOf := work("unheard of")
		b.eng.put(engine.DefaultLane, unheardOf, work("quick"), work("quick"))
		b.wakeLane()
		<-time.After(time.Minute)
		if seen := b.seen(); items(seen.done) != 2 || items(seen.failed) != 0 || items(seen.back) != 0 {
			t.Errorf("done %v, failed %v, given back %v; want two done", seen.done, seen.failed, seen.back)
		}
		if left := b.eng.lanes[engine.DefaultLane]; len(left) != 1 || left[0].ID != unheardOf.ID {
			t.Errorf("left in the lane: %+v", left)
		}
	})
}

// The attempt's timeout counts from the claim by the database's clock, whatever the local clock says.
func TestHandlerStopsAtTheAttemptTimeout(t *testing.T) {
	var outcomes []Report
	hooks := hookFunc(func(o Report) { outcomes = append(outcomes, o) })
	slowly := func(w *Worker, eng *fakeEngine) {
		untilCancelled(w, eng)
		eng.claimTakes = 5 * time.Second // the attempt may have begun as early as the call
	}
	inBubble(t, Config{LeaseTTL: 30 * time.Second, PollInterval: time.Hour, Observer: hooks}, slowly, func(t *testing.T, b *bubble) {
		b.pass(10 * time.Second) // the first poll finds nothing
		database := time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)
		limited := work("long")
		limited.ExpiresAt = database.Add(30 * time.Second)
		limited.TimeoutAt = database.Add(45 * time.Second)
		b.eng.put(engine.DefaultLane, limited)
		began := time.Now()
		b.wakeLane()
		if cause := <-b.eng.causes; !errors.Is(cause, ErrAttemptTimeout) || time.Since(began) != 45*time.Second {
			t.Errorf("ended by %v after %v, want a timeout after 45s", cause, time.Since(began))
		}
		b.pass(time.Minute)
		if len(b.seen().failed)+len(b.seen().back) != 0 || len(outcomes) != 1 || outcomes[0].Settlement != Abandoned {
			t.Errorf("failed %v, given back %v, outcomes %v: want the background work to decide", b.seen().failed, b.seen().back, outcomes)
		}
		if last := b.seen().renewed[len(b.seen().renewed)-1]; last.at > began.Sub(epoch)+45*time.Second {
			t.Errorf("renewed at %v although abandoned", last.at)
		}
	})
}
