package upkeep

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A job can't act on the first page of its scan. It acts on the rows behind that page.
func TestJobsReadPastAPageOfHeldRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		page int    // rows that the scan finds at once
		held string // inserts a row more than that, of the flow $1 in the partition $2, at $3
		free func(t *testing.T, f *fixture.Flows, flow id.FlowID)
		job  func(*fixture.Flows) fixture.Job
	}{
		{
			"cancel siblings, behind a flow that is held", 1000, `
				INSERT INTO ff_pending_cancel_groups (partition_key, flow_id, downstream_eid, enqueued_at_ms)
				SELECT $2, $1, gen_random_uuid(), $3 FROM generate_series(0, $4)`,
			func(t *testing.T, f *fixture.Flows, flow id.FlowID) {
				f.Insert(t, "ff_pending_cancel_groups", fixture.Columns{
					"partition_key": fixture.PartitionOf(flow), "flow_id": flow, "downstream_eid": f.NodeID(flow, "b").UUID(),
					"enqueued_at_ms": f.Time().UnixMilli() + 1,
				}, nil)
			},
			func(f *fixture.Flows) fixture.Job { return upkeep.Of(f.Engine).CancelSiblings },
		},
		{
			"dispatch completions, behind a flow that is held", 10, `
				INSERT INTO ff_completion_event (partition_key, execution_id, flow_id, outcome, occurred_at_ms)
				SELECT $2, gen_random_uuid(), $1, 'failed', $3 FROM generate_series(0, $4)`,
			func(t *testing.T, f *fixture.Flows, flow id.FlowID) {
				f.SetExecution(t, f.NodeID(flow, "a"), fixture.EndedElsewhere)
				f.ForeignEvent(t, f.NodeID(flow, "a"), &flow, "success")
			},
			func(f *fixture.Flows) fixture.Job { return upkeep.Of(f.Engine).DispatchCompletions },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			held, free := f.Draw(t, nil, "a>b"), f.Draw(t, nil, "a>b")
			f.Exec(t, c.held, held, fixture.PartitionOf(held), f.Time().UnixMilli(), c.page)
			c.free(t, f, free)
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", held)
			if n, err := c.job(f)(t.Context(), 10); err != nil || n != 1 {
				t.Errorf("acted on %d, %v; want 1", n, err)
			}
			fixture.Commit(t, tx)
		})
	}
}
