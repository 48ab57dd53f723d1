package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowProgress is how far the members of a flow are.
type FlowProgress struct {
	State  state.FlowState           // as [FlowSnapshot.State] has it
	Counts map[state.PublicState]int // members by public state
	Total  int                       // members, those included whose state cannot be read: they have not ended, as far as is known
	Ended  int                       // members that have ended, however

	Unreadable int
}

// Done says that every member has ended, or that there is none. Members may be added to a flow that is done.
func (p FlowProgress) Done() bool { return p.Ended == p.Total }

// FlowProgress counts the members of a flow by public state, for a progress bar: [Engine.DescribeFlow] without the rest.
//
// Errors: [ErrNotFound]. One statement, which reads each member once, by an index of the flow's members, and no attempt
// of what this library ended. Locks nothing.
func (e *Engine) FlowProgress(ctx context.Context, flow id.FlowID) (FlowProgress, error) {
	const op = "read flow progress"
	row, err := e.q.GetFlowProgress(ctx, e.reader(), db.GetFlowProgressParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow,
	})
	if isNoRow(err) {
		err = &NotFoundError{Entity: "flow", ID: flow.String()}
	}
	if err != nil {
		return FlowProgress{}, wrap(op, err)
	}
	var counted FlowSnapshot
	if _, err := counted.setCounts(row.Members); err != nil {
		return FlowProgress{}, wrap(op, err)
	}
	progress := FlowProgress{
		State:  summedUp(state.FlowState(row.PublicFlowState), counted.Counts, counted.Unreadable),
		Counts: counted.Counts, Unreadable: counted.Unreadable, Total: counted.Unreadable,
	}
	for public, n := range counted.Counts {
		progress.Total += n
		if public.Terminal() {
			progress.Ended += n
		}
	}
	return progress, nil
}
