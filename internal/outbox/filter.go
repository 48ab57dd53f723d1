package outbox

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

func (f *Filter) isZero() bool {
	return f.Namespace == nil && f.InstanceTag == nil && len(f.Partitions) == 0 && f.Without == "" && !f.Lost
}

// instance has the values for filters to compare.
type instance struct{ namespace, tag string }

// keeps reports whether all events that f accepts are written, if kept of them are.
func (f *Filter) keeps(kept state.Kept) bool {
	return kept == state.KeptAll || kept == state.KeptLost && f.Lost
}

// lost reports whether the holder did not end the lease of a lease event.
func (r *Row) lost() bool {
	switch state.LeaseEventType(r.Kind) {
	case state.LeaseEventExpired, state.LeaseEventReclaimed:
		return true
	case state.LeaseEventRevoked:
		return r.RevokedBy == nil || *r.RevokedBy != "backend"
	}
	return false
}

// matches reports whether a subscription gets an event of an instance.
func (f *Filter) matches(row *Row, of instance) bool {
	if len(f.Partitions) > 0 && !slices.ContainsFunc(f.Partitions, func(p int16) bool { return int32(p) == row.Partition }) {
		return false
	}
	if f.Without != "" && row.Kind == f.Without || f.Lost && !row.lost() {
		return false
	}
	if f.Namespace != nil && of.namespace != *f.Namespace {
		return false
	}
	return f.InstanceTag == nil || of.tag == *f.InstanceTag || of.tag == InstanceTagKey+"="+*f.InstanceTag
}

// lookUp fills in the columns of executions in events, and returns the values for filters to compare. If the event has
// no value of its own, the value of the execution or the flow counts. One lookup serves all events and all readers of a
// process, and costs writers nothing.
func (h *Hub) lookUp(ctx context.Context, rows []*Row) ([]instance, error) {
	found := make([]instance, len(rows))
	executions, flows := new(lookup), new(lookup)
	for i, row := range rows {
		if row.Namespace != nil {
			found[i].namespace = *row.Namespace
		}
		if row.InstanceTag != nil {
			found[i].tag = *row.InstanceTag
		}
		switch {
		case row.Kind != flowCancelRequested:
			executions.add(row, i)
		case row.Namespace == nil || row.InstanceTag == nil:
			flows.add(row, i)
		}
	}
	if len(executions.ords) > 0 {
		of, err := h.q.ListEventExecutions(ctx, h.runner.AtOnce(), db.ListEventExecutionsParams{
			PartitionKeys: executions.partitions, ExecutionIDs: executions.ids, Ords: executions.ords,
		})
		if err != nil {
			return nil, err
		}
		for _, o := range of {
			found[o.Ord].complete(rows[o.Ord], o.Namespace, o.InstanceTag)
			rows[o.Ord].Of = Execution{Kind: o.Kind, Lane: o.LaneID, Node: o.Node, Tags: o.Tags}
		}
	}
	if len(flows.ords) > 0 {
		of, err := h.q.ListFlowInstances(ctx, h.runner.AtOnce(), db.ListFlowInstancesParams{
			PartitionKeys: flows.partitions, FlowIDs: flows.ids, Ords: flows.ords,
		})
		if err != nil {
			return nil, err
		}
		for _, o := range of {
			found[o.Ord].complete(rows[o.Ord], o.Namespace, o.InstanceTag)
		}
	}
	return found, nil
}

// flowCancelRequested is the only type of event for a flow.
const flowCancelRequested = "flow_cancel_requested"

// complete fills in the values missing in the event.
func (i *instance) complete(row *Row, namespace, tag string) {
	if row.Namespace == nil {
		i.namespace = namespace
	}
	if row.InstanceTag == nil {
		i.tag = tag
	}
}

// lookup is the input of one lookup statement.
type lookup struct {
	partitions []int16
	ids        []pgtype.UUID
	ords       []int32
}

// add adds the execution or flow of an event, except an impossible id. Filters needing one don't match it.
func (l *lookup) add(row *Row, ord int) {
	u, err := id.ParseExecutionUUID(row.Execution)
	if err != nil || row.Partition < 0 || row.Partition > 1<<15-1 {
		return
	}
	l.partitions = append(l.partitions, int16(row.Partition))
	l.ids = append(l.ids, pgUUID(u))
	l.ords = append(l.ords, int32(ord))
}
