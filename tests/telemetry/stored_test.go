package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/observe"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// tracer is an observer whose trace context is a value of the context.
type tracer struct{}

type traceKey struct{}

func traced(ctx context.Context, trace string) context.Context {
	return context.WithValue(ctx, traceKey{}, trace)
}

func (tracer) TraceContext(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	if trace == "panic" {
		panic("no trace")
	}
	return trace
}

func (tracer) BeginCreation(ctx context.Context) context.Context { return ctx }

func (tracer) Observe(context.Context, observe.Event) {}

func newTraced(t *testing.T) *fixture.Fixture {
	t.Helper()
	f := fixture.NewCloned(t) // in a shared database, another test's job may hold the rows
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Observer: tracer{}})
	return f
}

// claimOne claims the only claimable execution.
func claimOne(t *testing.T, f *fixture.Fixture) engine.Claimed {
	t.Helper()
	claimed, err := f.Claim(t.Context(), f.Worker(), 2)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%d claimed, error %v", len(claimed), err)
	}
	return claimed[0]
}

// Whatever ends a lease stores the trace context of the run, and the next claim returns it. A settlement without one
// keeps the last.
func TestEndsOfLeasesStoreTheTrace(t *testing.T) {
	t.Parallel()
	ends := []struct {
		name string
		end  func(context.Context, *fixture.Fixture, engine.Lease) error
	}{
		{"failure", func(ctx context.Context, f *fixture.Fixture, l engine.Lease) error {
			_, err := f.FailExecution(ctx, l, engine.Failure{Message: "no"})
			return err
		}},
		{"delay", func(ctx context.Context, f *fixture.Fixture, l engine.Lease) error {
			_, err := f.DelayExecutions(ctx, []engine.Delay{{Lease: l, For: time.Second}})
			return err
		}},
		{"release", func(ctx context.Context, f *fixture.Fixture, l engine.Lease) error {
			_, err := f.ReleaseLeases(ctx, []engine.Lease{l})
			return err
		}},
		{"suspension", func(ctx context.Context, f *fixture.Fixture, l engine.Lease) error {
			_, err := f.Engine.Suspend(ctx, engine.SuspendSpec{Lease: l, Condition: engine.Received("go")})
			if err == nil {
				_, err = f.Engine.Signal(ctx, engine.SignalSpec{Execution: l.Execution, Name: "go"})
			}
			return err
		}},
	}
	for _, slowly := range []bool{false, true} {
		for _, test := range ends {
			name := test.name
			if slowly {
				name += ", claimed by the slow path"
			}
			t.Run(name, func(t *testing.T) {
				f := newTraced(t)
				x := f.Create(t)
				again := func() engine.Claimed {
					t.Helper()
					f.Advance(time.Minute)
					if _, err := upkeep.Of(f.Engine).PromoteDelayed(t.Context(), 100); err != nil {
						t.Fatal(err)
					}
					if slowly {
						f.Exec(t, "UPDATE ff_attempt SET lease_epoch = lease_epoch - 1 WHERE execution_id = $1 AND outcome <> 'retry'", x.UUID().String())
					}
					return claimOne(t, f)
				}
				lease := claimOne(t, f).Lease
				lease.Trace = "00-1"
				if err := test.end(t.Context(), f, lease); err != nil {
					t.Fatal(err)
				}
				next := again()
				if next.PreviousTrace != "00-1" || next.Lease.Trace != "" {
					t.Errorf("previous trace %q, lease's %q", next.PreviousTrace, next.Lease.Trace)
				}
				if err := test.end(t.Context(), f, next.Lease); err != nil {
					t.Fatal(err)
				}
				if next = again(); next.PreviousTrace != "00-1" {
					t.Errorf("after a run without a trace: %q", next.PreviousTrace)
				}
			})
		}
	}
}

// Completions store it too, alone, together and after a change of the row: downstream executions read it with the
// results.
func TestUpstreamResultsHaveTheTrace(t *testing.T) {
	t.Parallel()
	for name, complete := range map[string]func(context.Context, *fixture.Flows, []engine.Lease) error{
		"one by one": func(ctx context.Context, f *fixture.Flows, leases []engine.Lease) error {
			return errors.Join(f.CompleteExecution(ctx, leases[0], nil), f.CompleteExecution(ctx, leases[1], nil))
		},
		"together": func(ctx context.Context, f *fixture.Flows, leases []engine.Lease) error {
			_, err := f.CompleteExecutions(ctx, []engine.Completion{{Lease: leases[0]}, {Lease: leases[1]}})
			return err
		},
		"in a transaction": func(ctx context.Context, f *fixture.Flows, leases []engine.Lease) error {
			return f.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
				return errors.Join(eng.CompleteExecution(ctx, leases[0], nil), eng.CompleteExecution(ctx, leases[1], nil))
			})
		},
		"failed for good": func(ctx context.Context, f *fixture.Flows, leases []engine.Lease) error {
			for _, l := range leases {
				if _, err := f.FailExecution(ctx, l, engine.Failure{Message: "no", Class: "permanent"}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>c", "b>c")
			leases := []engine.Lease{f.Lease(t, flow, "a"), f.Lease(t, flow, "b")}
			leases[0].Trace, leases[1].Trace = "00-a", "00-b"
			if err := complete(t.Context(), f, leases); err != nil {
				t.Fatal(err)
			}
			upstreams, err := f.UpstreamResults(t.Context(), f.NodeID(flow, "c"))
			if err != nil || len(upstreams) != 2 {
				t.Fatalf("%+v, %v", upstreams, err)
			}
			for _, u := range upstreams {
				if u.Trace != "00-"+u.Node {
					t.Errorf("%s has the trace %q", u.Node, u.Trace)
				}
			}
		})
	}
}

// A trace that can't be stored is left out, and fails nothing.
func TestUnusableTracesAreLeftOut(t *testing.T) {
	f := newTraced(t)
	x := f.Create(t)
	for _, trace := range []string{strings.Repeat("x", 257), "\xff", "00\n", "é", "\x00", "panic"} {
		lease := claimOne(t, f).Lease
		if lease.Trace = trace; trace == "panic" {
			lease.Trace = ""
		}
		ctx := traced(t.Context(), trace)
		if _, err := f.Engine.Signal(ctx, engine.SignalSpec{Execution: x, Name: "go"}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Engine.Suspend(ctx, engine.SuspendSpec{Lease: lease, Condition: engine.Received("never"), OnTimeout: engine.ResumeOnTimeout}); err != nil {
			t.Fatal(err)
		}
		if err := f.Engine.Resume(ctx, x, 0); err != nil {
			t.Fatal(err)
		}
		if next := claimOne(t, f); next.PreviousTrace != "" {
			t.Errorf("%q was stored for %q", next.PreviousTrace, trace)
		} else if _, err := f.ReleaseLeases(ctx, []engine.Lease{next.Lease}); err != nil {
			t.Fatal(err)
		}
	}
	signals, err := f.Engine.ReceivedSignals(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range signals {
		if signal.Trace != "" {
			t.Errorf("a signal has the trace %q", signal.Trace)
		}
	}
}

// spans gives each run of a handler a trace context of its own.
type spans struct{ reports chan worker.Report }

func (s spans) BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	return traced(ctx, "00-"+work.ID.UUID().String()+work.PreviousTrace), func(r worker.Report) { s.reports <- r }
}

func (spans) BeginPart(ctx context.Context, _ worker.Part) (context.Context, func(worker.PartReport)) {
	return ctx, nil
}

// A worker stores the context of each run, also of waits, turns and completions in the handler's transaction, and
// signals carry the sender's.
func TestWorkersStoreTheTrace(t *testing.T) {
	f := newTraced(t)
	reports := make(chan worker.Report, 1)
	w := fixture.NewWorker(t, f.Engine, worker.Config{
		Lanes: []worker.Lane{{Name: f.Lane}}, NoReconcile: true, Observer: spans{reports}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	approved := engine.Signal[string]{Name: "approved"}
	var previous, sender string
	fixture.HandleKind(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (struct{}, error) {
		previous = job.PreviousTrace
		received, err := approved.Await(ctx, job, engine.Wait{})
		if err != nil {
			return struct{}{}, err
		}
		_ = received
		signals, err := f.Engine.ReceivedSignals(ctx, job.ID)
		if err != nil || len(signals) != 1 {
			return struct{}{}, errors.Join(err, errors.New("no signal"))
		}
		sender = signals[0].Trace
		return struct{}{}, f.InTx(ctx, func(tx pgx.Tx, _ *engine.Engine) error { return job.Complete(ctx, tx, struct{}{}) })
	})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	x := f.Create(t)
	if r := <-reports; r.Settlement != worker.Suspended {
		t.Fatalf("reported %+v", r)
	}
	if _, err := f.Engine.Signal(traced(t.Context(), "00-sender"), engine.SignalSpec{Execution: x, Name: "approved", Payload: []byte(`"yes"`)}); err != nil {
		t.Fatal(err)
	}
	if r := <-reports; r.Err != nil {
		t.Fatalf("reported %+v", r)
	}
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	first := "00-" + x.UUID().String()
	if previous != first || sender != "00-sender" {
		t.Errorf("previous trace %q, sender %q", previous, sender)
	}
	if got := storedTrace(t, f, x); got != first+first {
		t.Errorf("stored %q after the completion", got)
	}
}

func storedTrace(t *testing.T, f *fixture.Fixture, x id.ExecutionID) string {
	t.Helper()
	return fixture.Texts(t, f.Pool, "SELECT coalesce(ffx_trace, '') FROM ff_exec_core WHERE execution_id = $1", x.UUID().String())[0]
}
