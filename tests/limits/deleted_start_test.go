package limits

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A start counts in its window from the moment in which it happened, also if the execution has been deleted since: by retention or by
// an operator, before or after the window was counted. L3.
func TestDeletedExecutionsDontMoveTheirStarts_L3(t *testing.T) {
	for name, remove := range map[string]func(*testing.T, *fixture.Fixture){
		"retention": func(t *testing.T, f *fixture.Fixture) { f.Retain(t) },
		"operator": func(t *testing.T, f *fixture.Fixture) {
			if _, err := operator.DeleteWhere(t.Context(), f.Engine, engine.ExecutionFilter{Lane: f.Lane, State: "completed"}, operator.Bulk{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			const window = 10 * time.Minute
			kind := kindOf(f, engine.Rate[sync](2, window))
			kind.Policy = &policy.Execution{Retention: policy.MinRetention}
			for range 6 {
				created(t, f.Engine, kind, sync{})
			}
			first := wantClaimable(t, f, 2, "at first")
			f.Advance(time.Second)
			complete(t, f, first...)
			f.Advance(policy.MinRetention)
			remove(t, f)
			if n := len(fixture.Texts(t, f.Pool, "SELECT 'x' FROM ff_exec_core")); n != 4 {
				t.Fatalf("%d executions are left, want those that wait", n)
			}
			wantClaimable(t, f, 0, "in the same window")
			f.Advance(window - time.Second - policy.MinRetention - time.Millisecond)
			wantClaimable(t, f, 0, "a millisecond before the window is over")
			f.Advance(time.Millisecond)
			wantClaimable(t, f, 2, "in the next window")
		})
	}
}

// An execution that was cancelled before it started and deleted since is no start. L3.
func TestDeletedExecutionsThatNeverStartedAreNoStarts_L3(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, engine.Rate[sync](1, time.Hour))
	x := created(t, f.Engine, kind, sync{}).ID
	created(t, f.Engine, kind, sync{})
	admit(t, f.Engine)
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.DeleteWhere(t.Context(), f.Engine, engine.ExecutionFilter{Lane: f.Lane, State: "cancelled"}, operator.Bulk{}); err != nil {
		t.Fatal(err)
	}
	wantClaimable(t, f, 1, "the other one")
}
