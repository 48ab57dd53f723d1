package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// retries is a set of failed attempts that will be retried.
type retries struct {
	params db.ScheduleRetriesParams
}

func newRetries(nowMs int64, attemptOutcome, leaseEvent string) *retries {
	return &retries{params: db.ScheduleRetriesParams{NowMs: nowMs, AttemptOutcome: attemptOutcome, LeaseEvent: leaseEvent}}
}

func (s *retries) add(a core.EndingAttempt, retryAtMs int64) {
	p := &s.params
	p.PartitionKeys = append(p.PartitionKeys, a.Execution.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, core.PgUUID(a.Execution.UUID()))
	p.AttemptIndexes = append(p.AttemptIndexes, a.Index)
	p.RaisedEpochs = append(p.RaisedEpochs, a.Epoch)
	p.LeaseIDs = append(p.LeaseIDs, a.LeaseID)
	p.WorkerInstanceIDs = append(p.WorkerInstanceIDs, a.Instance)
	p.DelaysUntilMs = append(p.DelaysUntilMs, retryAtMs)
	p.FailureReasons = append(p.FailureReasons, a.Reason)
	p.FailureCategories = append(p.FailureCategories, a.Category)
	p.FailureClasses = append(p.FailureClasses, string(a.Class))
	p.FailureDetails = append(p.FailureDetails, a.Detail)
}

func (s *retries) len() int { return len(s.params.ExecutionIDs) }

// scheduleRetries writes retries.
func (e *Engine) scheduleRetries(ctx context.Context, tx *core.Txn, s *retries) error {
	if s.len() == 0 {
		return nil
	}
	rows, err := e.c.Q.ScheduleRetries(ctx, tx, s.params)
	if err != nil {
		return err
	}
	tx.Due.Leases()
	var fair []creation
	for _, row := range rows {
		switch {
		case row.Fair != "":
			x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID.Bytes)
			fair = append(fair, comingBack(x, row.LaneID, row.Priority, row.Namespace, row.Fair))
			continue
		case row.Claimable:
			tx.Due.Lane(row.LaneID)
			continue
		case row.HasLimits:
			tx.Due.Gated()
		}
		tx.Due.Delayed = true
	}
	return e.placeReturning(ctx, tx, fair)
}
