package upkeep

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// An end negates the deadline. A replay by FlowFabric makes it unknown, so that the column that FlowFabric knows counts
// again. A replay by this library keeps the deadline, even within the millisecond of the end.
func TestUndoneEndHasNoNegativeDeadline(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	deadline := f.Time().Add(time.Hour)
	due := func(spec *engine.ExecutionSpec) { spec.Deadline = deadline }
	end := func() engine.Claimed {
		t.Helper()
		c := f.Start(t, due)
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
		if got := f.Stored(t, c.ID); *got.LastDeadline != -deadline.UnixMilli() {
			t.Fatalf("an end stores the deadline %d", *got.LastDeadline)
		}
		return c
	}

	foreign := end()
	f.SetExecution(t, foreign.ID, "result = NULL") // changes no deadline
	if got := f.Stored(t, foreign.ID); *got.LastDeadline != -deadline.UnixMilli() {
		t.Errorf("another write of an ended execution leaves the deadline %d", *got.LastDeadline)
	}
	f.SetExecution(t, foreign.ID, `lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_replay_attempt', attempt_index = attempt_index + 1, terminal_at_ms = NULL`)
	if got := f.Stored(t, foreign.ID); got.LastDeadline != nil {
		t.Errorf("an undone end leaves the deadline %d", *got.LastDeadline)
	}
	if got := f.Describe(t, foreign.ID).Deadline; !got.Equal(deadline) {
		t.Errorf("its deadline is read as %v, want %v", got, deadline)
	}
	c := f.ClaimOne(t)
	if got := f.Stored(t, c.ID); c.ID != foreign.ID || *got.DeadlineAtMs != deadline.UnixMilli() || got.LastDeadline != nil && *got.LastDeadline < 0 {
		t.Errorf("claimed %s with the deadline %v, %v", c.ID, got.DeadlineAtMs, got.LastDeadline)
	}

	own := end()
	if _, err := f.Operator().ReplayExecution(t.Context(), own.ID, engine.ReplayCompleted); err != nil {
		t.Fatal(err)
	}
	if got := f.Stored(t, own.ID); *got.LastDeadline != deadline.UnixMilli() {
		t.Errorf("a replay by this library stores the deadline %v", got.LastDeadline)
	}
}
