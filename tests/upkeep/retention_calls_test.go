package upkeep

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// calling is an execution that waits for others that it has called, and that have ended.
type calling struct {
	*fixture.Fixture
	engine.Claimed
	called []id.ExecutionID
}

func newCalling(t *testing.T, n int) *calling {
	t.Helper()
	f := trimmingFixture(t)
	f.Retain(t)
	c := &calling{Fixture: f, Claimed: f.Start(t)}
	c.call(t, n)
	if _, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: c.Lease, Call: "parts"}); err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := c.CompleteExecution(t.Context(), c.ClaimOne(t).Lease, []byte("out")); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// call calls n executions.
func (c *calling) call(t *testing.T, n int) {
	t.Helper()
	specs := slices.Repeat([]engine.ExecutionSpec{{Kind: "called", Lane: c.Lane}}, n)
	called, err := c.Engine.Call(t.Context(), engine.CallSpec{Lease: c.Lease, Name: "parts", Executions: specs})
	if err != nil {
		t.Fatal(err)
	}
	c.called = append(c.called, called...)
}

// resume lets the caller continue, and claims it.
func (c *calling) resume(t *testing.T) {
	t.Helper()
	if err := c.Resume(t.Context(), c.ID, 0); err != nil {
		t.Fatal(err)
	}
	c.Claimed = c.ClaimOne(t)
}

// Retention keeps a called execution until its caller has stored its result or ended, and deletes it at most an hour
// after that.
func TestRetentionKeepsAwaitedCalls(t *testing.T) {
	for _, test := range []struct {
		name string
		free func(t *testing.T, c *calling)
	}{
		{"until the result is stored", func(t *testing.T, c *calling) {
			c.resume(t)
			if _, err := c.RecordStep(t.Context(), engine.StepRecord{Lease: c.Lease, Name: "parts"}); err != nil {
				t.Fatal(err)
			}
		}},
		{"until the caller is cancelled", func(t *testing.T, c *calling) { c.Cancel(t, c.ID) }},
		{"until the caller has failed", func(t *testing.T, c *calling) {
			c.resume(t)
			c.Fail(t, c.Lease, engine.Failure{Message: "broken", Class: "permanent"})
		}},
		{"until the caller is deleted", func(t *testing.T, c *calling) {
			c.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", c.ID.UUID())
		}},
		{"until the caller calls others by a replay", func(t *testing.T, c *calling) {
			c.Cancel(t, c.ID)
			if _, err := operator.Replay(t.Context(), c.Fixture.Engine, c.ID, operator.ReplayFromStep("parts")); err != nil {
				t.Fatal(err)
			}
			c.Claimed = c.ClaimOne(t)
			c.call(t, 1)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCalling(t, 2)
			uncalled := c.Ended(t)
			c.Advance(fixture.Week)
			c.Retain(t)
			c.WantKept(t, "kept kept gone", c.called[0], c.called[1], uncalled)
			c.Advance(fixture.Day)
			c.Retain(t)
			c.WantKept(t, "kept kept", c.called...)
			if status := retentionStatus(t, c.Fixture); status.Waiting != 2 {
				t.Errorf("%d wait for a timer, want 2", status.Waiting)
			}
			test.free(t, c)
			c.Advance(time.Hour + time.Minute)
			c.Retain(t)
			c.WantKept(t, "gone gone", c.called[:2]...)
		})
	}
}

// The sweep of all executions keeps them too, and sets no timers.
func TestSweepKeepsAwaitedCalls(t *testing.T) {
	c := newCalling(t, 2)
	uncalled := c.Ended(t)
	c.Exec(t, "DELETE FROM ff_completion_event")
	c.Advance(2 * fixture.Week)
	for range 3 {
		if _, err := upkeep.Of(c.Engine).RepairQueue(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	c.WantKept(t, "kept kept gone", c.called[0], c.called[1], uncalled)
	if status := retentionStatus(t, c.Fixture); status.Waiting != 0 {
		t.Errorf("%d wait for a timer", status.Waiting)
	}
}

// Awaited calls in front of other ends hold up nothing: retention's position passes them, and each is looked at again
// by its timer only, once in an hour at most.
func TestAwaitedCallsHoldUpNothing(t *testing.T) {
	c := newCalling(t, 30)
	var others []id.ExecutionID
	for range 5 {
		others = append(others, c.Ended(t))
	}
	c.Advance(fixture.Week)
	looked := func(batch int) (sum int) {
		for {
			n, err := upkeep.Of(c.Engine).Retain(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			if sum += n; n < batch {
				return sum
			}
		}
	}
	if n := looked(10); n != 35 {
		t.Errorf("looked at %d, want 35", n)
	}
	c.WantKept(t, "gone gone gone gone gone", others...)
	if n := looked(10); n != 0 {
		t.Errorf("looked at %d again at once", n)
	}
	c.Advance(30 * time.Minute)
	if n := looked(10); n != 0 {
		t.Errorf("looked at %d after half an hour", n)
	}
	c.Advance(31 * time.Minute)
	if n := looked(10); n != 30 {
		t.Errorf("looked at %d after an hour, want 30", n)
	}
	c.WantKept(t, "kept kept", c.called[0], c.called[29])
}

// A called execution that was added to a flow is kept with it while its caller waits.
func TestPurgeKeepsFlowsOfAwaitedCalls(t *testing.T) {
	c := newCalling(t, 1)
	f := fixture.FlowsOn(c.Fixture)
	spec := fixture.Chart(nil, "a>b")
	for spec.ID = id.NewFlowID(); fixture.PartitionOf(spec.ID) != c.called[0].Partition(); {
		spec.ID = id.NewFlowID()
	}
	flow := f.NewFlowOf(t, spec)
	f.Succeed(t, flow, "a")
	f.Succeed(t, flow, "b")
	if _, err := f.AddMembers(t.Context(), flow, c.called); err != nil {
		t.Fatal(err)
	}
	c.Advance(fixture.Week + time.Hour)
	c.Retain(t)
	purge(t, c.Fixture)
	wantFlow(t, c.Fixture, flow, true)
	c.WantKept(t, "kept", c.called...)
	c.Cancel(t, c.ID)
	c.Advance(time.Hour)
	c.Retain(t)
	purge(t, c.Fixture)
	wantFlow(t, c.Fixture, flow, false)
}
