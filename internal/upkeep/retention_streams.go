package upkeep

import (
	"context"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// shortenDue removes the executions from due whose frames are too many for the transaction.
func (r *retaining) shortenDue(ctx context.Context, tx *core.Txn, due []ended) ([]ended, error) {
	var x core.ExecutionArrays
	for _, d := range due {
		x.Add(d.partition, d.execution)
	}
	later, err := r.c.Shorten(ctx, tx, x)
	if err != nil || len(later) == 0 {
		return due, err
	}
	left := due[:0]
	for _, d := range due {
		if later[d.execution] {
			r.comeBack(0, d.partition, core.PgUUID(d.execution))
			continue
		}
		left = append(left, d)
	}
	return left, nil
}

// shortenFlows removes the members from due whose frames are too many for the transaction, and leaves their flows for
// the next one.
func (p *purging) shortenFlows(ctx context.Context, tx *core.Txn, due []dueFlow) error {
	var x core.ExecutionArrays
	for _, d := range due {
		x.Partitions = append(x.Partitions, d.members.Partitions...)
		x.Executions = append(x.Executions, d.members.Executions...)
	}
	if x.Empty() {
		return nil
	}
	later, err := p.c.Shorten(ctx, tx, x)
	if err != nil || len(later) == 0 {
		return err
	}
	for i := range due {
		d := &due[i]
		var members core.ExecutionArrays
		for n, execution := range d.members.Executions {
			if !later[execution.Bytes] {
				members.Add(d.members.Partitions[n], execution.Bytes)
			}
		}
		if len(members.Executions) < len(d.members.Executions) && d.whole {
			d.whole = false
			p.left = append(p.left, flowRow{d.PartitionKey, d.FlowID})
		}
		d.members = members
	}
	return nil
}
