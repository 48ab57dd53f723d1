package engine

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// DefaultReclaimCap is how often the lease of an execution may be lost before the execution fails,
// where its policy says nothing.
const DefaultReclaimCap = 1000

// ExpireLeases gives executions back to their lanes whose lease has run out, oldest first, at most batch
// of them: the attempt goes on with the next claim, and its former holder is refused from now on. An
// execution whose leases were lost more often than its policy allows ends as failed instead. It returns
// how many leases it settled; the caller repeats it while that equals batch.
//
// Any number of processes may run it; a row that another transaction holds waits for the next call.
//
// Transaction: one to forget leases that this process saw end; one for about 4,000 others that were taken
// or renewed long enough ago, to look at them; for those that have run out one more, two where executions
// end. It locks the flows of members that end, exclusively, and executions and attempts without waiting.
// Emits lease events. Safe to repeat.
func (e *Engine) ExpireLeases(ctx context.Context, batch int) (int, error) {
	const op = "expire leases"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	if err := e.forgetWatches(ctx, op); err != nil {
		return 0, err
	}
	for settled := 0; ; {
		looked, due, err := e.lookAtLeases(ctx, op, batch-settled)
		if err != nil || looked == 0 {
			return settled, err
		}
		if len(due) == 0 {
			continue
		}
		// Those that end their executions wait for the locks of flows; the others do not wait for them.
		ending := slices.DeleteFunc(slices.Clone(due), func(row db.LookAtLeasesRow) bool { return !row.LostTooOften })
		returning := slices.DeleteFunc(due, func(row db.LookAtLeasesRow) bool { return row.LostTooOften })
		before := settled
		for _, rows := range [][]db.LookAtLeasesRow{returning, ending} {
			if len(rows) == 0 {
				continue
			}
			n, err := inTx(ctx, e, op, func(tx *txn) (int, error) { return e.expireLeases(ctx, tx, rows) })
			if err != nil {
				return settled, err
			}
			settled += n
		}
		if settled == before || settled >= batch {
			return settled, nil
		}
	}
}

// lookedAtOnce is how many leases a statement looks at, about: some are as many as a claim takes.
const lookedAtOnce = 4 * MaxBatch

// lookAtLeases returns how many leases were looked at, and up to batch of those that have run out.
func (e *Engine) lookAtLeases(ctx context.Context, op string, batch int) (looked int64, due []db.LookAtLeasesRow, err error) {
	due, err = inStatement(ctx, e, op, func(conn db.DBTX, _ *rings) ([]db.LookAtLeasesRow, error) {
		return e.q.LookAtLeases(ctx, conn, db.LookAtLeasesParams{
			DefaultCap: DefaultReclaimCap, NowMs: e.nowMs(), MaxItems: lookedAtOnce, BatchSize: int32(batch),
		})
	})
	if err != nil {
		return 0, nil, err
	}
	looked = due[0].LookedAt
	return looked, slices.DeleteFunc(due, func(row db.LookAtLeasesRow) bool { return !row.ExecutionID.Valid }), nil
}

func (e *Engine) expireLeases(ctx context.Context, tx *txn, due []db.LookAtLeasesRow) (int, error) {
	flows := newFlowSet(e.cfg.Partitions)
	params := db.TakeExpiredLeasesParams{DefaultCap: DefaultReclaimCap, NowMs: e.nowMs()}
	for _, row := range due {
		if row.LostTooOften && !flows.admit(flowOf(row.FlowID)) {
			continue
		}
		params.PartitionKeys = append(params.PartitionKeys, row.PartitionKey)
		params.ExecutionIds = append(params.ExecutionIds, row.ExecutionID)
		params.AttemptIndexes = append(params.AttemptIndexes, row.AttemptIndex)
	}
	if err := e.lockFlowsExclusive(ctx, tx, flows); err != nil {
		return 0, err
	}
	taken, err := e.q.TakeExpiredLeases(ctx, tx, params)
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	var executions executionArrays
	for _, row := range taken {
		executions.add(row.PartitionKey, row.ExecutionID)
	}
	current, err := e.lockCurrentAttempts(ctx, tx, executions)
	if err != nil {
		return 0, err
	}
	nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
	if err != nil {
		return 0, err
	}
	release := db.ReleaseExpiredLeasesParams{NowMs: nowMs}
	var strays db.FenceStrayLeasesParams
	ends := newEnding(nowMs, state.OutcomeFailed)
	ends.params.LostLeases = 1
	ends.params.CancellationReason = new("reclaim_cap_exceeded")
	for i := range taken {
		row := &taken[i]
		raised := max(row.HighestEpoch, row.LeaseEpoch) + 1
		switch {
		case row.LifecyclePhase != string(state.Active) || row.AttemptIndex != current[row.ExecutionID].AttemptIndex:
			strays.PartitionKeys = append(strays.PartitionKeys, row.PartitionKey)
			strays.ExecutionIds = append(strays.ExecutionIds, pgUUID(row.ExecutionID))
			strays.AttemptIndexes = append(strays.AttemptIndexes, row.AttemptIndex)
		case row.LostTooOften:
			if row.FlowID != nil && !flows.has(*row.FlowID) {
				continue // it joined the flow meanwhile; the next scan foresees it
			}
			ends.add(endingAttempt{
				execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), index: row.AttemptIndex, epoch: raised,
				leaseID: row.LeaseID, instance: row.WorkerInstanceID, leaseEvent: "expired",
				reason: reasonLostTooOften, category: string(policy.InfraCrash),
			})
		default:
			release.PartitionKeys = append(release.PartitionKeys, row.PartitionKey)
			release.ExecutionIds = append(release.ExecutionIds, pgUUID(row.ExecutionID))
			release.AttemptIndexes = append(release.AttemptIndexes, row.AttemptIndex)
			release.RaisedEpochs = append(release.RaisedEpochs, raised)
			release.LeaseIds = append(release.LeaseIds, row.LeaseID)
			release.WorkerInstanceIds = append(release.WorkerInstanceIds, row.WorkerInstanceID)
		}
	}
	if len(strays.ExecutionIds) > 0 {
		if err := e.q.FenceStrayLeases(ctx, tx, strays); err != nil {
			return 0, err
		}
	}
	if len(release.ExecutionIds) > 0 {
		lanes, err := e.q.ReleaseExpiredLeases(ctx, tx, release)
		if err != nil {
			return 0, err
		}
		tx.rings.leases()
		for _, lane := range lanes {
			tx.rings.lane(lane)
		}
	}
	return len(strays.ExecutionIds) + len(release.ExecutionIds) + ends.len(), e.endByJob(ctx, tx, ends)
}
