package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
)

// noting returns middleware that notes when it begins and ends.
func noting(name string, notes *[]string) Middleware {
	return func(next HandlerFunc) HandlerFunc {
		return func(ctx context.Context, work *engine.Claimed) ([]byte, error) {
			*notes = append(*notes, "begin "+name)
			defer func() { *notes = append(*notes, "end "+name) }()
			return next(ctx, work)
		}
	}
}

func TestUseWrapsHandlersInOrder(t *testing.T) {
	var notes []string
	inBubble(t, Config{Concurrency: 1}, func(w *Worker, _ *fakeEngine) {
		Use(w, noting("a", &notes), noting("b", &notes))
		on(w, "k", func(context.Context, Job[size]) (size, error) {
			notes = append(notes, "handle")
			return size{}, nil
		})
		Use(w, noting("c", &notes))
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, work("k"))
		b.wakeLane()
		if want := []string{"begin a", "begin b", "begin c", "handle", "end c", "end b", "end a"}; !slices.Equal(notes, want) {
			t.Errorf("%q, want %q", notes, want)
		}
		if n := items(b.seen().done); n != 1 {
			t.Errorf("%d completed, want 1", n)
		}
	})
}

type middlewareKey struct{}

// Middleware decides with what context and payload a handler runs, and what becomes of its result and error.
func TestMiddlewareChangesWhatPassesThroughIt(t *testing.T) {
	around := func(next HandlerFunc) HandlerFunc {
		return func(ctx context.Context, work *engine.Claimed) ([]byte, error) {
			work.Payload = []byte(`{"Width":21}`)
			work.Lease.Epoch = 99 // no one but the handler sees it
			result, err := next(context.WithValue(ctx, middlewareKey{}, "value"), work)
			if err != nil {
				return nil, &Fail{Class: policy.Permanent, Category: "from outside", Err: err}
			}
			return append([]byte(" "), result...), nil
		}
	}
	bothWays(t, Config{}, func(w *Worker, _ *fakeEngine) {
		Use(w, around)
		on(w, "k", func(ctx context.Context, job Job[size]) (int, error) {
			if ctx.Value(middlewareKey{}) != "value" {
				return 0, errors.New("the context has no value")
			}
			return job.Args.Width * 2, nil
		})
		on(w, "fails", func(context.Context, Job[size]) (size, error) { return size{}, errors.New("no") })
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, work("k"), work("fails"))
		b.wakeLane()
		done, failed := b.seen().done, b.seen().failed
		if items(done) != 1 || string(done[0].items[0].Result) != " 42" || done[0].items[0].Lease.Epoch != 1 {
			t.Errorf("completed: %+v", done)
		}
		if items(failed) != 1 || failed[0].items[0].Failure.Category != "from outside" || failed[0].items[0].Failure.Class != policy.Permanent {
			t.Errorf("failed: %+v", failed)
		}
	})
}

// A middleware that panics, or ends its goroutine, fails the attempt; one that calls nothing decides alone.
func TestMiddlewareEndsLikeAHandler(t *testing.T) {
	around := func(next HandlerFunc) HandlerFunc {
		return func(ctx context.Context, work *engine.Claimed) ([]byte, error) {
			switch work.Kind {
			case "panics":
				panic("no tracer")
			case "refused":
				return nil, Permanent(errors.New("not here"))
			}
			return next(ctx, work)
		}
	}
	called := 0
	inBubble(t, Config{Concurrency: 1}, func(w *Worker, _ *fakeEngine) {
		Use(w, around)
		for _, kind := range []string{"panics", "refused", "later"} {
			on(w, kind, func(_ context.Context, job Job[size]) (size, error) {
				called++
				return size{}, fmt.Errorf("wrapped: %w", job.Delay(time.Minute))
			})
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, work("panics"), work("refused"), work("later"))
		b.wakeLane()
		var categories []string
		for _, c := range b.seen().failed {
			for _, f := range c.items {
				categories = append(categories, f.Failure.Category+"/"+string(f.Failure.Class))
			}
		}
		slices.Sort(categories)
		if want := []string{"/permanent", "panic/transient"}; !slices.Equal(categories, want) {
			t.Errorf("failed: %q, want %q", categories, want)
		}
		if items(b.seen().delayed) != 1 || called != 1 {
			t.Errorf("%d delayed, %d handlers called, want one each", items(b.seen().delayed), called)
		}
	})
}

func TestContinuesLater(t *testing.T) {
	t.Parallel()
	delay := Job[size]{}.Delay(time.Second)
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"a failure", errors.New("no"), false},
		{"the name of a wait alone", fferr.ErrAwaiting, false},
		{"a delay", delay, true},
		{"a wrapped delay", fmt.Errorf("wrapped: %w", delay), true},
		{"a delay made a failure", &Fail{Err: delay}, false},
		{"a settled turn", &Fail{Err: &later{settled: Suspended}}, true},
	} {
		if got := ContinuesLater(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRunRefusesBadMiddleware(t *testing.T) {
	t.Parallel()
	for _, bad := range []Middleware{nil, func(HandlerFunc) HandlerFunc { return nil }} {
		w := onFake(t, newFakeEngine(), Config{})
		on(w, "k", func(context.Context, Job[size]) (size, error) { return size{}, nil })
		Use(w, bad)
		if err := w.Run(t.Context()); !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), "middleware") {
			t.Errorf("%v", err)
		}
	}
}

// F6: a middleware sees the panic of a handler as an error, and may answer with another one. A panic that it returns is stored
// as one.
func TestMiddlewareSeesAPanicAsAnError(t *testing.T) {
	var seen []any
	around := func(next HandlerFunc) HandlerFunc {
		return func(ctx context.Context, work *engine.Claimed) ([]byte, error) {
			result, err := next(ctx, work)
			if panicked, ok := errors.AsType[*PanicError](err); ok && strings.Contains(string(panicked.Stack), "middleware_test.go") {
				seen = append(seen, panicked.Value)
			}
			return result, err
		}
	}
	// The value of a panic may be any error. It is no wait and no failure of a class.
	value := Permanent(errors.New("boom"))
	inBubble(t, Config{}, func(w *Worker, _ *fakeEngine) {
		Use(w, around)
		on(w, "k", func(context.Context, Job[size]) (int, error) { panic(value) })
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, work("k"))
		b.wakeLane()
		if !slices.Equal(seen, []any{value}) {
			t.Errorf("the middleware saw %v", seen)
		}
		failed := b.seen().failed
		if len(failed) != 1 || len(failed[0].items) != 1 {
			t.Fatalf("failed: %+v", failed)
		}
		if f := failed[0].items[0].Failure; f.Category != "panic" || f.Class != policy.Transient || f.Detail == "" {
			t.Errorf("the failure is %+v", f)
		}
	})
}
