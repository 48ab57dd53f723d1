package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// retries is a set of failed attempts that will be retried.
type retries struct {
	params db.ScheduleRetriesParams
}

func newRetries(nowMs int64, attemptOutcome, leaseEvent string) *retries {
	return &retries{params: db.ScheduleRetriesParams{NowMs: nowMs, AttemptOutcome: attemptOutcome, LeaseEvent: leaseEvent}}
}

func (s *retries) add(a endingAttempt, retryAtMs int64) {
	p := &s.params
	p.PartitionKeys = append(p.PartitionKeys, a.execution.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, pgUUID(a.execution.UUID()))
	p.AttemptIndexes = append(p.AttemptIndexes, a.index)
	p.RaisedEpochs = append(p.RaisedEpochs, a.epoch)
	p.LeaseIDs = append(p.LeaseIDs, a.leaseID)
	p.WorkerInstanceIDs = append(p.WorkerInstanceIDs, a.instance)
	p.DelaysUntilMs = append(p.DelaysUntilMs, retryAtMs)
	p.FailureReasons = append(p.FailureReasons, a.reason)
	p.FailureCategories = append(p.FailureCategories, a.category)
	p.FailureClasses = append(p.FailureClasses, string(a.class))
	p.FailureDetails = append(p.FailureDetails, a.detail)
}

func (s *retries) len() int { return len(s.params.ExecutionIDs) }

// scheduleRetries writes retries.
func (e *Engine) scheduleRetries(ctx context.Context, tx *txn, s *retries) error {
	if s.len() == 0 {
		return nil
	}
	rows, err := e.q.ScheduleRetries(ctx, tx, s.params)
	if err != nil {
		return err
	}
	tx.due.leases()
	var fair []creation
	for _, row := range rows {
		switch {
		case row.Fair != "":
			x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID.Bytes)
			fair = append(fair, comingBack(x, row.LaneID, row.Priority, row.Namespace, row.Fair))
			continue
		case row.Claimable:
			tx.due.lane(row.LaneID)
			continue
		case row.HasLimits:
			tx.due.gated()
		}
		tx.due.delayed = true
	}
	return e.placeReturning(ctx, tx, fair)
}
