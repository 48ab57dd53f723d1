package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowProgress is the progress of a flow's members.
type FlowProgress struct {
	State  state.FlowState           // as [FlowSnapshot.State]
	Counts map[state.PublicState]int // members by public state
	Total  int                       // members, including unreadable ones, which count as not ended
	Ended  int                       // ended members, with any outcome

	Unreadable int
}

// Done reports whether every member has ended. A flow without members is done. A done flow may still get members.
func (p FlowProgress) Done() bool { return p.Ended == p.Total }

// FlowProgress counts the members of a flow by public state. It is cheaper than [Engine.DescribeFlow].
//
// Errors: [fferr.ErrNotFound].
func (e *Engine) FlowProgress(ctx context.Context, flow id.FlowID) (FlowProgress, error) {
	const op = "read flow progress"
	row, err := e.c.Q.GetFlowProgress(ctx, e.c.Reader(), db.GetFlowProgressParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow,
	})
	if core.IsNoRow(err) {
		err = &fferr.NotFoundError{Entity: "flow", ID: flow.String()}
	}
	if err != nil {
		return FlowProgress{}, core.Wrap(op, err)
	}
	var counted FlowSnapshot
	if _, err := counted.setCounts(row.Members); err != nil {
		return FlowProgress{}, core.Wrap(op, err)
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
