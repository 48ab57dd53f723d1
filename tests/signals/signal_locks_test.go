package signals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A signal takes one statement, whose message does not grow with the signals of before. Conditions are evaluated without
// their payloads.
func TestSignalSendsNoOtherSignals_S16(t *testing.T) {
	f := fixture.NewCloned(t)
	log := new(fixture.RoundTripLog)
	eng := f.EngineOn(t, fixture.OpenPool(t, f.Url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = log }), engine.Config{})
	l := f.Suspend(t, engine.AtLeast(50, engine.DistinctSignals, "ready"))
	for n := range 49 {
		sent, trips := log.Of(func() {
			if _, err := eng.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: "ready", Payload: []byte("payload")}); err != nil {
				t.Fatal(err)
			}
		})
		if trips != 1 || !slices.Contains(sent, "DeliverSignal") {
			t.Fatalf("signal %d: %q in %d round trips", n, sent, trips)
		}
	}
	const evaluate = `SELECT coalesce(ffx_satisfied_by('{"Single": {"waitpoint_key": "a", "matcher": "Wildcard"}}', '{"a": [{"signal_id": "s"}]}')::text, '')`
	if got := fixture.Texts(t, f.Pool, evaluate); !slices.Equal(got, []string{`["s"]`}) {
		t.Errorf("%q", got)
	}
	if got := f.Signal(t, l, "ready"); got != "satisfied" {
		t.Error(got)
	}
}

// Signals are listed as they came, whatever their waitpoints are called.
func TestSignalsAreListedAsTheyCame_S36(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, engine.AllOf(engine.Received("a"), engine.Received("b"), engine.Received("c"), engine.Received("d")))
	for _, name := range []string{"c", "a", "c", "b", "d"} {
		f.Advance(time.Millisecond)
		f.Signal(t, l, name)
	}
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil {
		t.Fatal(err)
	}
	var names string
	for _, s := range received {
		names += s.Name
	}
	if names != "cacbd" {
		t.Error(names)
	}
}

// A scan of all partitions is one statement if nothing is due.
func TestScansOfWaitsAreOneStatement_S50(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Suspend(t, ready)
	log := new(fixture.RoundTripLog)
	eng := f.EngineOn(t, fixture.OpenPool(t, f.Url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = log }), engine.Config{})
	for name, scan := range map[string]func(context.Context, int) (int, error){
		"ScanTimedOutWaits": upkeep.Of(eng).ExpireWaits, "ExpireWaitpoints": upkeep.Of(eng).ExpireWaitpoints,
	} {
		sent, trips := log.Of(func() {
			if n, err := scan(t.Context(), 100); n != 0 || err != nil {
				t.Fatal(n, err)
			}
		})
		if trips != 1 || !slices.Contains(sent, name) {
			t.Errorf("%q in %d round trips", sent, trips)
		}
	}
}

// A token's bearer who waited for the execution acts on what was committed meanwhile.
func TestTokenAfterALock(t *testing.T) {
	for name, c := range map[string]struct {
		beside func(ctx context.Context, eng *engine.Engine, w engine.Waitpoint, l engine.Lease) error
		want   string
	}{
		"another signal": {func(ctx context.Context, eng *engine.Engine, _ engine.Waitpoint, l engine.Lease) error {
			_, err := eng.Signal(ctx, engine.SignalSpec{Execution: l.Execution, Name: "paid"})
			return err
		}, "satisfied"},
		"the same decision": {func(ctx context.Context, eng *engine.Engine, w engine.Waitpoint, _ engine.Lease) error {
			_, err := eng.SignalWaitpoint(ctx, engine.WaitpointSignal{
				SignalSpec: engine.SignalSpec{Execution: w.Execution, Name: "approved", IdempotencyKey: "once"}, Waitpoint: w.ID, Token: w.Token,
			})
			return err
		}, "duplicate"},
		"a resume": {func(ctx context.Context, eng *engine.Engine, _ engine.Waitpoint, l engine.Lease) error {
			return eng.Resume(ctx, l.Execution, 0)
		}, "no waitpoint"},
		"a cancel": {func(ctx context.Context, eng *engine.Engine, _ engine.Waitpoint, l engine.Lease) error {
			return eng.CancelExecution(ctx, engine.CancelSpec{ID: l.Execution})
		}, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			l := f.Start(t).Lease
			w := open(t, f, l)
			f.SuspendAgain(t, l, engine.AllOf(engine.Received("approved").At(decision), engine.Received("paid")))
			tx := f.BeginTx(t)
			if err := c.beside(t.Context(), f.WithTx(tx), w, l); err != nil {
				t.Fatal(err)
			}
			rival := f.Rival(t)
			wait := fixture.Async(t, func(ctx context.Context) string {
				signalled, err := rival.SignalWaitpoint(ctx, engine.WaitpointSignal{
					SignalSpec: engine.SignalSpec{Execution: w.Execution, Name: "approved", IdempotencyKey: "once"}, Waitpoint: w.ID, Token: w.Token,
				})
				switch {
				case errors.Is(err, fferr.ErrEnded):
					return "ended"
				case errors.Is(err, fferr.ErrNotFound):
					return "no waitpoint"
				case signalled.Duplicate:
					return "duplicate"
				}
				return fmt.Sprint(signalled.Effect, err)[:len(signalled.Effect)]
			})
			rival.AwaitBlocked(t, f)
			fixture.Commit(t, tx)
			if got := wait(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A timeout acts on what was committed after it was found due: it looks again under the execution's lock.
func TestTimeoutAfterALock(t *testing.T) {
	for name, c := range map[string]struct {
		beside func(ctx context.Context, eng *engine.Engine, l engine.Lease) error
		want   string
	}{
		"a resume": {func(ctx context.Context, eng *engine.Engine, l engine.Lease) error {
			return eng.Resume(ctx, l.Execution, 0)
		}, "runnable unowned eligible_now waiting attempt_interrupted waiting_for_worker"},
		"a signal to another waitpoint": {func(ctx context.Context, eng *engine.Engine, l engine.Lease) error {
			_, err := eng.Signal(ctx, engine.SignalSpec{Execution: l.Execution, Name: "other"})
			return err
		}, fixture.StateFailed},
		"a cancel": {func(ctx context.Context, eng *engine.Engine, l engine.Lease) error {
			return eng.CancelExecution(ctx, engine.CancelSpec{ID: l.Execution})
		}, fixture.StateCancelled},
		"its signal, just in time": {func(ctx context.Context, eng *engine.Engine, l engine.Lease) error {
			_, err := eng.Signal(ctx, engine.SignalSpec{Execution: l.Execution, Name: "ready"})
			return err
		}, fixture.StateResumable},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := f.Suspend(t, ready, func(s *engine.SuspendSpec) { s.OnTimeout = engine.FailOnTimeout })
			earlier := f.Earlier(t, f.Pool)
			f.Advance(time.Hour)
			// The job has found the wait in its snapshot, and has not locked it.
			held, release := f.Holding(t, "ScanTimedOutWaits")
			ran := fixture.Async(t, func(ctx context.Context) error {
				_, err := upkeep.Of(held.Engine).ExpireWaits(ctx, 10)
				return err
			})
			held.AwaitBlocked(t, f)
			if err := c.beside(t.Context(), earlier, l); err != nil {
				t.Fatal(err)
			}
			release()
			if err := ran(); err != nil {
				t.Fatal(err)
			}
			f.WantState(t, l.Execution, c.want)
		})
	}
}
