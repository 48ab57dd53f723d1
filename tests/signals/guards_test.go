package signals

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A waitpoint whose time is over is not the waitpoint of a later wait, although no job has ended it yet: its token stays dead.
func TestExpiredWaitpointsAreNotBound(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w, err := f.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: l, Key: "ready", TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	f.SuspendAgain(t, l, ready)
	signal := engine.WaitpointSignal{SignalSpec: engine.SignalSpec{Execution: l.Execution, Name: "ready"}, Waitpoint: w.ID, Token: w.Token}
	if got, err := f.SignalWaitpoint(t.Context(), signal); !errors.Is(err, fferr.ErrNotFound) && !errors.Is(err, fferr.ErrWaitpointClosed) {
		t.Errorf("%+v, %v", got, err)
	}
	f.WantState(t, l.Execution, fixture.StateSuspended)
}

// A wait that has ended and begun anew since the job looked is not timed out: the job looks again under the lock.
func TestTimeoutsLookAgainUnderTheLock(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, ready, func(s *engine.SuspendSpec) { s.OnTimeout = engine.FailOnTimeout })
	earlier := f.Earlier(t, f.Pool) // for which the wait is in time
	f.Advance(time.Hour)
	job := f.StoppedBefore(t, "TakeSuspended")
	expired := fixture.Async(t, func(ctx context.Context) int {
		n, err := upkeep.Of(job.Engine).ExpireWaits(ctx, 10)
		if err != nil {
			t.Error(err)
		}
		return n
	})
	job.AwaitStop(t)
	if got, err := earlier.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: "ready"}); err != nil || got.Effect != engine.SignalSatisfied {
		t.Fatal(got, err)
	}
	l = f.ClaimOne(t).Lease
	f.SuspendAgain(t, l, ready, func(s *engine.SuspendSpec) { s.OnTimeout = engine.FailOnTimeout })
	job.Resume()
	if n := expired(); n != 0 {
		t.Errorf("acted on %d waits", n)
	}
	f.WantState(t, l.Execution, fixture.StateSuspended)
}

// An execution that joined a flow since the job looked ends with the flow's lock, so by a later call.
func TestTimeoutsOfNewMembersNeedTheirFlow(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a")
	x := f.Standalone(t, flow, "x")
	f.ClaimAll(t)
	f.SuspendAgain(t, f.Leases[x], ready, func(s *engine.SuspendSpec) { s.OnTimeout = engine.FailOnTimeout })
	f.Advance(time.Hour)
	job := f.StoppedBefore(t, "TakeSuspended")
	expired := fixture.Async(t, func(ctx context.Context) int {
		n, err := upkeep.Of(job.Engine).ExpireWaits(ctx, 10)
		if err != nil {
			t.Error(err)
		}
		return n
	})
	job.AwaitStop(t)
	if _, err := f.AddMembers(t.Context(), flow, []id.ExecutionID{x}); err != nil {
		t.Fatal(err)
	}
	job.Resume()
	if n := expired(); n != 0 {
		t.Errorf("acted on %d waits", n)
	}
	f.WantState(t, x, fixture.StateSuspended)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
	f.WantState(t, x, fixture.StateFailed)
}

// Each end of a wait wakes the lane of its execution in its own process, after the commit.
func TestEndsOfWaitsWakeTheirLanes(t *testing.T) {
	called := func(t *testing.T, f *fixture.Fixture) (caller engine.Claimed, part engine.Claimed) {
		t.Helper()
		caller = f.Start(t)
		spec := engine.CallSpec{Lease: caller.Lease, Name: "part", Executions: []engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}}}
		if _, err := f.Call(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		return caller, f.ClaimOne(t)
	}
	signal := func(l engine.Lease) engine.SignalSpec {
		return engine.SignalSpec{Execution: l.Execution, Name: "ready"}
	}
	for name, arrange := range map[string]func(t *testing.T, f *fixture.Fixture) (end func(ctx context.Context, e *engine.Engine) error){
		"a signal": func(t *testing.T, f *fixture.Fixture) func(context.Context, *engine.Engine) error {
			l := f.Suspend(t, ready)
			return func(ctx context.Context, e *engine.Engine) error {
				_, err := e.Signal(ctx, signal(l))
				return err
			}
		},
		"one of many signals": func(t *testing.T, f *fixture.Fixture) func(context.Context, *engine.Engine) error {
			l := f.Suspend(t, ready)
			return func(ctx context.Context, e *engine.Engine) error {
				outcomes, err := e.SignalEach(ctx, []engine.SignalSpec{signal(l)})
				return errors.Join(err, outcomes[0].Err)
			}
		},
		"a signal by a token": func(t *testing.T, f *fixture.Fixture) func(context.Context, *engine.Engine) error {
			l := f.Start(t).Lease
			w := f.OpenWaitpoint(t, l, "ready")
			f.SuspendAgain(t, l, ready)
			return func(ctx context.Context, e *engine.Engine) error {
				_, err := e.SignalWaitpoint(ctx, engine.WaitpointSignal{SignalSpec: signal(l), Waitpoint: w.ID, Token: w.Token})
				return err
			}
		},
		"an operator": func(t *testing.T, f *fixture.Fixture) func(context.Context, *engine.Engine) error {
			l := f.Suspend(t, ready)
			return func(ctx context.Context, e *engine.Engine) error { return e.Resume(ctx, l.Execution, 0) }
		},
		"a timeout": func(t *testing.T, f *fixture.Fixture) func(context.Context, *engine.Engine) error {
			f.Suspend(t, ready)
			f.Advance(time.Hour)
			return func(ctx context.Context, e *engine.Engine) error {
				_, err := upkeep.Of(e).ExpireWaits(ctx, 10)
				return err
			}
		},
		"the end of a call": func(t *testing.T, f *fixture.Fixture) func(context.Context, *engine.Engine) error {
			caller, part := called(t, f)
			if _, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: caller.Lease, Call: "part"}); err != nil {
				t.Fatal(err)
			}
			if err := f.CompleteExecution(t.Context(), part.Lease, nil); err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context, e *engine.Engine) error {
				_, err := upkeep.Of(e).ResumeCallers(ctx, 10)
				return err
			}
		},
		"a wait for a call that has ended": func(t *testing.T, f *fixture.Fixture) func(context.Context, *engine.Engine) error {
			caller, part := called(t, f)
			if err := f.CompleteExecution(t.Context(), part.Lease, nil); err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context, e *engine.Engine) error {
				_, err := e.Suspend(ctx, engine.SuspendSpec{Lease: caller.Lease, Call: "part"})
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			end := arrange(t, f)
			// A process that hears of its own work alone.
			eng := f.EngineOn(t, fixture.OpenPool(t, f.Url, nil), engine.Config{NoListener: true})
			marker := id.LaneID(f.Name + "-marker")
			listener := fixture.ListenBy(t, eng, f.Lane, marker)
			until := func() (lane bool) {
				t.Helper()
				for {
					switch progress.Receive(t, "the marker", listener.Received) {
					case f.Lane:
						lane = true
					case marker:
						return lane
					}
				}
			}
			fixture.Await(t, "the listener to listen", func() bool {
				eng.Wake(marker)
				return len(listener.Received) > 0
			})
			if err := end(t.Context(), eng); err != nil {
				t.Fatal(err)
			}
			eng.Wake("between")
			woken := false
			for range 3 { // a marker of before, and those after it
				eng.Wake(marker)
				woken = until() || woken
			}
			if !woken {
				t.Error("the lane is not woken")
			}
			f.ClaimOne(t)
		})
	}
}

// An execution whose wait the server refuses again and again fails with its words: it does not stay under way, and doesn't
// hold up those that wait beside it. W2
func TestWaitsThatAreRefusedFail(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	c.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused by a trigger'; END $$`)
	c.Exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON ff_suspension_current FOR EACH ROW WHEN (NEW.ffx_asked = 'bad') EXECUTE FUNCTION refuse()")
	var all []id.ExecutionID
	for _, kind := range []string{"good", "bad", "good", "bad"} {
		all = append(all, c.Create(t, func(s *engine.ExecutionSpec) { s.Kind = kind }))
	}
	stop := c.Work(t, worker.Config{NoReconcile: true}, func(w *worker.Worker) {
		for _, kind := range []string{"good", "bad"} {
			fixture.HandleKind(w, kind, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
				a, err := approved.Await(ctx, job, engine.Wait{Asked: kind})
				return a.By, err
			})
		}
	})
	fixture.Await(t, "every wait to be settled", func() bool {
		return c.Stored(t, all[1]).State == fixture.StateFailed && c.Stored(t, all[3]).State == fixture.StateFailed &&
			c.Stored(t, all[0]).State == fixture.StateSuspended && c.Stored(t, all[2]).State == fixture.StateSuspended
	})
	stop()
	failed, err := c.Engine.DescribeExecution(t.Context(), all[1])
	if err != nil || !strings.Contains(failed.FailureReason, "refused by a trigger") || failed.Attempts != 1 {
		t.Errorf("%+v, %v", failed, err)
	}
}
