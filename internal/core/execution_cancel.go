package core

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// Cancellation has the reason, source and revoker of a cancellation. An execution with a pending cancellation keeps its
// first reason and source.
type Cancellation struct {
	Reason    string
	Source    string // on whose behalf
	RevokedBy string // the revoker in the lease event, if a lease is lost
}

// Revokers of leases in lease events.
const (
	RevokedByHolder     = "backend" // the holder's own call
	RevokedByOperator   = "operator"
	RevokedByReconciler = "reconciler" // a background job
)

// Sources of cancellations after a breach of a budget, and by a full limit.
const (
	CancelledByBudget = "budget"
	CancelledByLimit  = "limit"
)

// Sources and reasons of cancellations of flows.
const (
	CancelledByFlow          = "cancel_flow"
	CancelledByFlowRequested = "cancel_flow_header"
	DefaultFlowCancelReason  = "flow_cancelled"
)

// Cancelling is a set of executions that end as cancelled, in lock order.
type Cancelling struct{ Params db.EndCancelledParams }

func NewCancelling(nowMs int64) *Cancelling {
	return &Cancelling{Params: db.EndCancelledParams{NowMs: nowMs}}
}

func (s *Cancelling) Add(x id.ExecutionID, how Cancellation) {
	p := &s.Params
	p.PartitionKeys = append(p.PartitionKeys, x.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, PgUUID(x.UUID()))
	p.Reasons = append(p.Reasons, how.Reason)
	p.Sources = append(p.Sources, how.Source)
	p.RevokedBys = append(p.RevokedBys, how.RevokedBy)
}

// EndCancelled writes cancellations with all their consequences, and returns the ended executions. The caller has
// locked the executions, their current attempts and the flows of members.
func (c *Core) EndCancelled(ctx context.Context, tx *Txn, s *Cancelling) ([]EndedExecution, error) {
	var rows []db.EndCancelledRow
	err := pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			return c.Q.DropEntriesOf(ctx, conn, db.DropEntriesOfParams{
				PartitionKeys: s.Params.PartitionKeys, ExecutionIDs: s.Params.ExecutionIDs,
			})
		},
		func(conn db.DBTX) (err error) {
			rows, err = c.Q.EndCancelled(ctx, conn, s.Params)
			return err
		},
	)
	if err != nil {
		return nil, err
	}
	once := !slices.ContainsFunc(rows, func(row db.EndCancelledRow) bool { return row.Replayed })
	ended := make([]EndedExecution, len(rows))
	for i, row := range rows {
		ended[i] = EndedExecution{
			ID:      id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			Flow:    FlowOf(row.FlowID),
			Outcome: state.CompletionCancelled,
			Once:    once,
		}
		if row.Leased {
			tx.Due.Leases()
			tx.Due.Lost(row.WorkerInstanceID)
		}
		if row.HasLimits {
			tx.Due.Gated()
		}
		if row.SequenceLane != "" {
			tx.Due.SequenceEnded(row.SequenceLane)
		}
	}
	return ended, c.DiscardAndResolve(ctx, tx, ended, s.Params.NowMs)
}
