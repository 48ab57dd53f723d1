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
	return &Cancelling{Params: db.EndCancelledParams{NowMs: &nowMs}}
}

func (s *Cancelling) Add(x id.ExecutionID, how Cancellation) {
	p := &s.Params
	p.PartitionKeys = append(p.PartitionKeys, x.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, PgUUID(x.UUID()))
	p.Reasons = append(p.Reasons, how.Reason)
	p.Sources = append(p.Sources, how.Source)
	p.RevokedBys = append(p.RevokedBys, how.RevokedBy)
}

// steps returns the statements that end the executions, and calls done with the ended ones.
func (s *Cancelling) steps(ctx context.Context, c *Core, done func([]db.EndCancelledRow)) []Step {
	return []Step{
		func(conn db.DBTX) error {
			return c.Q.DropEntriesOf(ctx, conn, db.DropEntriesOfParams{
				PartitionKeys: s.Params.PartitionKeys, ExecutionIDs: s.Params.ExecutionIDs,
			})
		},
		func(conn db.DBTX) error {
			rows, err := c.Q.EndCancelled(ctx, conn, s.Params)
			done(rows)
			return err
		},
	}
}

// EndCancelled writes cancellations with all their consequences, and returns the ended executions. The caller has
// locked the executions, their current attempts and the flows of members.
func (c *Core) EndCancelled(ctx context.Context, tx *Txn, s *Cancelling) ([]EndedExecution, error) {
	var rows []db.EndCancelledRow
	err := pgtx.InOneTrip(ctx, tx, s.steps(ctx, c, func(ended []db.EndCancelledRow) { rows = ended })...)
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
	}
	tx.Due.cancelled(rows)
	return ended, c.DiscardAndResolve(ctx, tx, ended, *s.Params.NowMs)
}

// cancelled adds the notifications for cancelled executions, except the one for their completion events.
func (n *Notifications) cancelled(rows []db.EndCancelledRow) {
	for _, row := range rows {
		if row.Leased {
			n.Leases()
			n.Lost(row.WorkerInstanceID)
		}
		if row.HasLimits {
			n.Gated()
		}
		if row.SequenceLane != "" {
			n.SequenceEnded(row.SequenceLane)
		}
	}
}

// cancelOutside ends unfinished executions outside flows in one round trip, with all consequences. For any other
// execution the error is [ErrFellThrough], and nothing is written.
func (c *Core) cancelOutside(ctx context.Context, op string, s *Cancelling) error {
	partitions, executions := s.Params.PartitionKeys, s.Params.ExecutionIDs
	ends := db.InsertCompletionEventsParams{
		PartitionKeys: partitions, ExecutionIDs: executions,
		Outcomes: slices.Repeat([]string{string(state.CompletionCancelled)}, len(executions)), Dispatched: slices.Repeat([]bool{true}, len(executions)),
	}
	return InStatements(ctx, c, op, func(due *Notifications) []Step {
		steps := []Step{
			func(conn db.DBTX) error {
				return c.Q.LockToCancel(ctx, conn, db.LockToCancelParams{PartitionKeys: partitions, ExecutionIDs: executions})
			},
			func(conn db.DBTX) error {
				return c.Q.LockCurrentAttempts(ctx, conn, db.LockCurrentAttemptsParams{PartitionKeys: partitions, ExecutionIDs: executions})
			},
		}
		steps = append(steps, s.steps(ctx, c, func(rows []db.EndCancelledRow) {
			if len(rows) > 0 {
				due.Completions()
				due.cancelled(rows)
			}
		})...)
		return append(steps,
			func(conn db.DBTX) error {
				return c.Q.DiscardWaiting(ctx, conn, db.DiscardWaitingParams{PartitionKeys: partitions, ExecutionIDs: executions})
			},
			func(conn db.DBTX) error {
				return c.Q.InsertCompletionEvents(ctx, conn, ends)
			},
		)
	})
}
