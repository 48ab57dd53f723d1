package operators

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Executions whose unique key another one has, or that lack the step from which to replay, are refused. The others of their
// batch are replayed. L5
func TestReplayWhereRefusesSomeAlone(t *testing.T) {
	cancelled := func(t *testing.T, f *fixture.Fixture, change func(*engine.ExecutionSpec)) id.ExecutionID {
		x := f.Create(t, change)
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
			t.Fatal(err)
		}
		return x
	}
	plain := func(*engine.ExecutionSpec) {}
	t.Run("unique keys", func(t *testing.T) {
		f := fixture.NewCloned(t)
		unique := func(s *engine.ExecutionSpec) { s.Unique = &engine.Unique{ByLane: true} }
		former, latter := cancelled(t, f, unique), cancelled(t, f, unique) // one execution gets the key
		taken := func(s *engine.ExecutionSpec) { s.Unique, s.Kind = &engine.Unique{ByLane: true}, "other" }
		refused := cancelled(t, f, taken)
		holder := f.Create(t, taken)
		free := []id.ExecutionID{cancelled(t, f, plain), cancelled(t, f, plain)}
		done, err := operator.ReplayWhere(t.Context(), f.Engine, engine.ExecutionFilter{Lane: f.Lane, State: state.PublicCancelled}, operator.Bulk{})
		if err != nil || done.Matched != 5 || done.Changed != 3 || done.Refused != 2 {
			t.Errorf("%+v, error %v", done, err)
		}
		f.WantState(t, refused, fixture.StateCancelled)
		f.WantState(t, holder, fixture.StateReady)
		for _, x := range free {
			wantRunsAgain(t, f, x)
		}
		if n := len(fixture.Texts(t, f.Pool, `SELECT public_state FROM ff_exec_core
			WHERE execution_id = ANY ($1) AND public_state = 'waiting'`, []string{former.UUID().String(), latter.UUID().String()})); n != 1 {
			t.Errorf("%d of two with one key run again, want 1", n)
		}
	})
	t.Run("steps", func(t *testing.T) {
		f := fixture.NewCloned(t)
		c := f.Start(t)
		if _, err := f.RecordStep(t.Context(), engine.StepRecord{Lease: c.Lease, Name: "pay"}); err != nil {
			t.Fatal(err)
		}
		f.Fail(t, c.Lease, fixture.ForGood)
		lacks := f.Start(t)
		f.Fail(t, lacks.Lease, fixture.ForGood)
		done, err := operator.ReplayWhere(t.Context(), f.Engine, engine.ExecutionFilter{Lane: f.Lane}, operator.Bulk{}, operator.ReplayFromStep("pay"))
		if err != nil || done.Changed != 1 || done.Refused != 1 {
			t.Errorf("%+v, error %v", done, err)
		}
		wantRunsAgain(t, f, c.ID)
	})
}

func wantRunsAgain(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
	t.Helper()
	if got, err := f.ExecutionState(t.Context(), x); err != nil || got != state.PublicWaiting {
		t.Errorf("%s is %s, error %v", x, got, err)
	}
}
