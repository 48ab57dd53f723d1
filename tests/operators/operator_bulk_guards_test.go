package operators

import (
	"context"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// An execution that is deleted after a bulk operation has listed it is refused, and the operation goes on.
func TestBulkOperationsGoOnBesideADeletedExecution(t *testing.T) {
	for _, c := range bulkCalls {
		t.Run(c.name, func(t *testing.T) {
			b := newBulked(t)
			r := b.StoppedBefore(t, "TakeExecutions")
			var got operator.BulkProgress
			done := fixture.Async(t, func(ctx context.Context) (err error) {
				got, err = c.call(ctx, r.Rival.Engine, b.all, operator.Bulk{})
				return err
			})
			r.AwaitStop(t)
			b.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id IN ($1, $2)", b.byName["another"].UUID(), b.byName["completed"].UUID())
			r.Resume()
			err := done()
			want := operator.BulkProgress{Matched: 7, Changed: c.changed, Refused: c.refused}
			if c.name != "replay" { // it would have refused both
				want.Changed, want.Refused = want.Changed-1, want.Refused+1
			}
			if err != nil || got != want {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
		})
	}
}

// The filter of a bulk operation may be a namespace alone: executions of others stay. L19
func TestBulkOperationsByNamespace(t *testing.T) {
	f := fixture.NewCloned(t)
	in := func(namespace id.Namespace) id.ExecutionID {
		return f.Create(t, func(s *engine.ExecutionSpec) { s.Namespace = namespace })
	}
	trial, live, again := in("trial"), in("live"), in("trial")
	got, err := operator.CancelWhere(t.Context(), f.Engine, engine.ExecutionFilter{Namespace: "trial"}, "", operator.Bulk{Batch: 1})
	if want := (operator.BulkProgress{Matched: 2, Changed: 2}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for x, want := range map[id.ExecutionID]state.PublicState{trial: state.PublicCancelled, live: state.PublicWaiting, again: state.PublicCancelled} {
		if s, err := f.DescribeExecution(t.Context(), x); err != nil || s.State.Public != want {
			t.Errorf("%s is %s, %v, want %s", x, s.State.Public, err, want)
		}
	}
}

// MoveWhere wakes the workers of the lane that it moves executions to, once they are there.
func TestMoveWhereWakesWorkers(t *testing.T) {
	b := newBulked(t)
	to, marker := b.Lane+".new", b.Lane+".marker"
	e := b.Rival(t).ListenTo(t, to, marker)
	if _, err := operator.MoveWhere(t.Context(), b.Fixture.Engine, b.all, to, operator.Bulk{}); err != nil {
		t.Fatal(err)
	}
	b.Flush() // its notification comes before the marker
	b.Wake(marker)
	for woken := false; ; {
		switch lane := progress.Receive(t, "the marker to be heard", e.Received); {
		case lane == to:
			woken = true
		case lane == marker && !woken:
			t.Fatal("no worker was woken")
		case lane == marker:
			return
		}
	}
}
