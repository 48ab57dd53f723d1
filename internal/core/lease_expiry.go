package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// lostLeases collects the results of attempts with lost leases.
type lostLeases struct {
	returns db.ReleaseExpiredLeasesParams
	ends    *Ending
}

func NewLostLeases(nowMs int64) *lostLeases {
	ends := NewEnding(nowMs, state.OutcomeFailed)
	ends.Params.LostLeases = 1
	ends.Params.CancellationReason = new("reclaim_cap_exceeded")
	return &lostLeases{returns: db.ReleaseExpiredLeasesParams{NowMs: nowMs}, ends: ends}
}

func (s *lostLeases) Len() int { return len(s.returns.ExecutionIDs) + s.ends.Len() }

// Add adds an attempt, unless too many leases were lost and the execution may not end now.
func (s *lostLeases) Add(a EndingAttempt, tooOften, mayEnd bool) {
	switch {
	case !tooOften:
		p := &s.returns
		p.PartitionKeys = append(p.PartitionKeys, a.Execution.Partition())
		p.ExecutionIDs = append(p.ExecutionIDs, PgUUID(a.Execution.UUID()))
		p.AttemptIndexes = append(p.AttemptIndexes, a.Index)
		p.RaisedEpochs = append(p.RaisedEpochs, a.Epoch)
		p.LeaseIDs = append(p.LeaseIDs, a.LeaseID)
		p.WorkerInstanceIDs = append(p.WorkerInstanceIDs, a.Instance)
	case mayEnd:
		a.LeaseEvent, a.Reason, a.Category, a.Class = "expired", ReasonLostTooOften, string(policy.InfraCrash), policy.InfraCrash
		s.ends.Add(a)
	}
}

// WriteLost returns executions to their lanes, or ends executions after too many lost leases.
func (c *Core) WriteLost(ctx context.Context, tx *Txn, s *lostLeases) error {
	if len(s.returns.ExecutionIDs) > 0 {
		lanes, err := c.Q.ReleaseExpiredLeases(ctx, tx, s.returns)
		if err != nil {
			return err
		}
		tx.Due.Leases()
		for _, lane := range lanes {
			tx.Due.Lane(lane)
		}
	}
	return c.EndByJob(ctx, tx, s.ends)
}
