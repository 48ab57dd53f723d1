package upkeep

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// asCreatedElsewhere makes a member what another program creates: nobody has adopted it.
func asCreatedElsewhere(t *testing.T, f *fixture.Flows, x id.ExecutionID) {
	t.Helper()
	f.SetExecution(t, x, `ffx_retry_count = NULL, lifecycle_phase = 'submitted', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending', blocking_reason = NULL`)
}

// An execution that joins a flow after it was found to be in none is not adopted as if nothing led to it.
func TestAdoptSkipsAnExecutionThatJoinedAFlow(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	asCreatedElsewhere(t, f, b)
	f.SetExecution(t, b, "flow_id = NULL")
	f.Advance(time.Minute)
	late := f.StoppedBefore(t, "AdoptExecutions")
	wait := actAsync(t, late.Maintenance().Adopt)
	late.AwaitStop(t)
	f.Exec(t, "UPDATE ff_exec_core SET flow_id = $3 WHERE partition_key = $1 AND execution_id = $2", b.Partition(), b.UUID(), flow)
	late.Resume()
	if n := wait(); n != 0 {
		t.Errorf("adopted %d", n)
	}
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d with the next call", n)
	}
	f.WantState(t, b, fixture.StateHeld)
}

// Another program counts an upstream's success while adoption reads the group. Adoption judges by the group as that
// leaves it.
func TestAdoptReadsGroupsUnderTheirLocks(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	asCreatedElsewhere(t, f, b)
	f.EndElsewhere(t, flow, "a", "success", time.Second)
	f.Advance(time.Minute)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "UPDATE ff_edge_group SET success_count = 1, running_count = 0 WHERE partition_key = $1::smallint AND flow_id = $2", fixture.PartitionOf(flow), flow)
	late := f.Rival(t)
	returned, wait := fixture.Watched(t, func(ctx context.Context) error {
		_, err := late.Maintenance().Adopt(ctx, 10)
		return err
	})
	late.AwaitBlockedOr(t, f.Fixture, returned)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	f.AdoptAll(t)
	f.WantState(t, b, fixture.StateReady)
}
