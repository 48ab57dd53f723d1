package operators

import (
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Called executions that have ended are deleted once their caller has stored their results or ended, and not before: the
// caller would fail for good. L10
func TestDeleteWhereKeepsAwaitedCalls(t *testing.T) {
	for _, test := range []struct {
		name string
		free func(t *testing.T, f *fixture.Fixture, caller engine.Claimed)
	}{
		{"until the results are stored", func(t *testing.T, f *fixture.Fixture, caller engine.Claimed) {
			if err := f.Resume(t.Context(), caller.ID, 0); err != nil {
				t.Fatal(err)
			}
			lease := f.ClaimOne(t).Lease
			if _, err := f.RecordStep(t.Context(), engine.StepRecord{Lease: lease, Name: "parts"}); err != nil {
				t.Fatal(err)
			}
		}},
		{"until the caller is cancelled", func(t *testing.T, f *fixture.Fixture, caller engine.Claimed) { f.Cancel(t, caller.ID) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			caller := f.Start(t)
			specs := slices.Repeat([]engine.ExecutionSpec{{Kind: "called", Lane: f.Lane}}, 2)
			called, err := f.Engine.Call(t.Context(), engine.CallSpec{Lease: caller.Lease, Name: "parts", Executions: specs})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: caller.Lease, Call: "parts"}); err != nil {
				t.Fatal(err)
			}
			for range called {
				if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, []byte("out")); err != nil {
					t.Fatal(err)
				}
			}
			uncalled := f.Ended(t)
			got, err := operator.DeleteWhere(t.Context(), f.Engine, engine.ExecutionFilter{Lane: f.Lane}, operator.Bulk{})
			if want := (operator.BulkProgress{Matched: 4, Changed: 1, Refused: 3}); err != nil || got != want {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
			f.WantKept(t, "kept kept gone", called[0], called[1], uncalled)
			for _, x := range called {
				if result, err := f.ExecutionResult(t.Context(), x); err != nil || string(result) != "out" {
					t.Errorf("the result of %s: %q, %v", x, result, err)
				}
			}
			test.free(t, f, caller)
			if _, err := operator.DeleteWhere(t.Context(), f.Engine, engine.ExecutionFilter{Kind: "called"}, operator.Bulk{}); err != nil {
				t.Fatal(err)
			}
			f.WantKept(t, "gone gone", called...)
		})
	}
}
