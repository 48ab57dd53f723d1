package signals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// effectsOf renders outcomes: effects, or errors.
func effectsOf(t *testing.T, outcomes []fferr.Outcome[engine.Signalled]) []string {
	t.Helper()
	effects := make([]string, len(outcomes))
	for i, o := range outcomes {
		switch {
		case errors.Is(o.Err, fferr.ErrInvalidInput):
			effects[i] = "invalid"
		case errors.Is(o.Err, fferr.ErrNotFound):
			effects[i] = "not found"
		case errors.Is(o.Err, fferr.ErrEnded):
			effects[i] = "ended"
		case o.Err != nil:
			t.Fatal(o.Err)
		case o.Value.Duplicate:
			effects[i] = "duplicate"
		default:
			effects[i] = string(o.Value.Effect)
		}
	}
	return effects
}

// Outcomes are in input order, and a refusal affects only its own signal, whatever the transaction.
func TestSignalEach(t *testing.T) {
	want := []string{"satisfied", "invalid", "not found", "appended", "ended", "satisfied", "duplicate", "buffered"}
	for _, c := range []struct {
		name string
		send func(t *testing.T, f *fixture.Fixture, specs []engine.SignalSpec) []fferr.Outcome[engine.Signalled]
	}{
		{"on a pool", func(t *testing.T, f *fixture.Fixture, specs []engine.SignalSpec) []fferr.Outcome[engine.Signalled] {
			outcomes, err := f.SignalEach(t.Context(), specs)
			if err != nil {
				t.Fatal(err)
			}
			return outcomes
		}},
		{"in a caller's transaction", func(t *testing.T, f *fixture.Fixture, specs []engine.SignalSpec) []fferr.Outcome[engine.Signalled] {
			undone := f.BeginTx(t)
			if outcomes, err := f.WithTx(undone).SignalEach(t.Context(), specs); err != nil || !slices.Equal(effectsOf(t, outcomes), want) {
				t.Fatal(outcomes, err)
			}
			if err := undone.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			tx := f.BeginTx(t)
			outcomes, err := f.WithTx(tx).SignalEach(t.Context(), specs)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Commit(t, tx)
			return outcomes
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			one, two, ended := f.Suspend(t, ready), f.Suspend(t, engine.AtLeast(2, engine.DistinctSignals, "ready")), f.Suspend(t, ready)
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: ended.Execution}); err != nil {
				t.Fatal(err)
			}
			to := func(l engine.Lease, name string) engine.SignalSpec {
				return engine.SignalSpec{Execution: l.Execution, Name: name}
			}
			once := to(two, "ready")
			once.IdempotencyKey, once.Payload = "once", []byte("2")
			specs := []engine.SignalSpec{
				to(one, "ready"), to(one, ""),
				{Execution: id.ExecutionIDFromRow(3, id.NewExecutionUUID()), Name: "ready"},
				to(two, "ready"), to(ended, "ready"), once, once, to(one, "ready"),
			}
			if got := effectsOf(t, c.send(t, f, specs)); !slices.Equal(got, want) {
				t.Fatalf("effects %q, want %q", got, want)
			}
			f.WantState(t, one.Execution, fixture.StateResumable)
			f.WantState(t, two.Execution, fixture.StateResumable)
			received, err := f.ReceivedSignals(t.Context(), two.Execution)
			if err != nil || len(received) != 2 || received[0].Payload != nil || string(received[1].Payload) != "2" {
				t.Errorf("received %+v, %v", received, err)
			}
		})
	}
}

// A batch larger than a transaction is delivered in several. None of nothing is an answer too.
func TestSignalEachInSeveralTransactions(t *testing.T) {
	f := fixture.New(t)
	var executions []id.ExecutionID
	for range 50 {
		executions = append(executions, f.Create(t))
	}
	specs := make([]engine.SignalSpec, engine.MaxBatch+1)
	for i := range specs {
		specs[i] = engine.SignalSpec{Execution: executions[i%len(executions)], Name: "ready", ID: id.NewSignalID()}
	}
	outcomes, err := f.SignalEach(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if o.Err != nil || o.Value.Effect != engine.SignalBuffered || o.Value.ID != specs[i].ID {
			t.Fatalf("outcome %d: %+v, want %s buffered", i, o, specs[i].ID)
		}
	}
	if outcomes, err := f.SignalEach(t.Context(), nil); err != nil || len(outcomes) != 0 {
		t.Error(outcomes, err)
	}
}

// Batches that name the same executions in opposite order lock them in one order: while the first is held, the second is
// free. So they never deadlock.
func TestSignalEachLocksInOneOrder(t *testing.T) {
	f := fixture.New(t)
	leases := []engine.Lease{f.Suspend(t, ready), f.Suspend(t, ready)}
	slices.SortFunc(leases, func(a, b engine.Lease) int { return a.Execution.Compare(b.Execution) })
	holder := f.BeginTx(t)
	fixture.LockExecution(t, holder, leases[0].Execution)
	var waits []func() error
	for n, order := range [][]int{{0, 1}, {1, 0}} {
		r := f.Rival(t)
		waits = append(waits, fixture.Async(t, func(ctx context.Context) error {
			var specs []engine.SignalSpec
			for _, i := range order {
				specs = append(specs, engine.SignalSpec{Execution: leases[i].Execution, Name: "ready"})
			}
			outcomes, err := r.SignalEach(ctx, specs)
			for i := range outcomes {
				err = errors.Join(err, outcomes[i].Err)
			}
			return err
		}))
		r.AwaitBlocked(t, f)
		if !f.Free(t, "ff_exec_core", leases[1].Execution) {
			t.Errorf("batch %d holds the second execution while it waits for the first", n)
		}
	}
	fixture.Commit(t, holder)
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	for _, l := range leases {
		if received, err := f.ReceivedSignals(t.Context(), l.Execution); err != nil || len(received) != 1 {
			t.Error(fmt.Sprint(received), err)
		}
		f.WantState(t, l.Execution, fixture.StateResumable)
	}
}
