package engine

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// spareCandidates is how many extra rows the slow path takes, so rows that can't be leased don't hide later ones.
const spareCandidates = 100

// claimSlowly claims from the head of the lane by locking first and checking each row. The slow path handles every
// claimable row, however another program left the attempts: a pointer without an attempt row, a finished attempt in place
// of the next one, or an epoch raised by another program.
func (e *Engine) claimSlowly(ctx context.Context, spec ClaimSpec, n int) ([]Claimed, error) {
	claimed, err := core.InTx(ctx, e.c, "claim", func(tx *core.Txn) ([]Claimed, error) {
		taken, err := e.c.Q.TakeClaimable(ctx, tx, db.TakeClaimableParams{
			LaneID:       string(spec.Lane),
			NowMs:        e.c.NowMs(),
			Capabilities: spec.capabilities(),
			Kinds:        spec.kinds(),
			MaxItems:     int32(n + spareCandidates),
		})
		if err != nil || len(taken) == 0 {
			return nil, err
		}
		attempts, err := e.takeAttemptsOf(ctx, tx, taken)
		if err != nil {
			return nil, err
		}
		nowMs, err := e.c.Q.GetNow(ctx, tx, e.c.NowMs())
		if err != nil {
			return nil, err
		}
		claimed := make([]Claimed, 0, len(taken))
		params := db.LeaseTakenExecutionsParams{
			NowMs:            nowMs,
			WorkerID:         string(spec.Worker),
			WorkerInstanceID: string(spec.Instance),
			LeaseTTLMs:       spec.LeaseTTL.Milliseconds(),
			EventType:        string(state.LeaseEventAcquired),
		}
		leaseIDs, attemptIDs := id.NewLeaseIDs(len(taken)), id.NewAttemptIDs(len(taken))
		for i := range taken {
			if len(claimed) == n {
				break
			}
			row := &taken[i]
			had, free := attempts[row.ExecutionID]
			if !free {
				continue
			}
			next, ok := core.ChooseAttempt(row, had, nowMs)
			if !ok {
				continue
			}
			if next.ID.IsZero() {
				next.ID = attemptIDs[i]
			}
			x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
			c := Claimed{
				ID:        x,
				Lease:     spec.lease(id.Fence{Execution: x, Attempt: int(next.Index), Epoch: next.Epoch}, leaseIDs[i], next.ID),
				ExpiresAt: time.UnixMilli(core.AddTTL(nowMs, spec.LeaseTTL.Milliseconds())),
				Kind:      row.ExecutionKind,
				Payload:   row.Payload,
				Tags:      core.DecodeTags(row.Tags),
				Flow:      row.FlowID,
				Priority:  int(row.Priority),
				CreatedAt: time.UnixMilli(row.CreatedAtMs),
				ReadyAt:   time.UnixMilli(row.ReadyAtMs),
				Type:      next.Kind,
				Resumed:   next.Resumed,
				Retries:   int(row.RetryCount),

				PreviousTrace: core.Deref(row.FfxTrace),
			}
			var timeoutAtMs int64
			if row.AttemptTimeoutMs > 0 {
				timeoutAtMs = core.AddTTL(nowMs, row.AttemptTimeoutMs)
				c.TimeoutAt = time.UnixMilli(timeoutAtMs)
			}
			claimed = append(claimed, c)
			params.PartitionKeys = append(params.PartitionKeys, row.PartitionKey)
			params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(row.ExecutionID))
			params.AttemptIndexes = append(params.AttemptIndexes, next.Index)
			params.AttemptTypes = append(params.AttemptTypes, string(next.Kind))
			params.AttemptIDs = append(params.AttemptIDs, core.PgUUID(next.ID))
			params.LeaseIDs = append(params.LeaseIDs, core.PgUUID(leaseIDs[i]))
			params.LeaseEpochs = append(params.LeaseEpochs, next.Epoch)
			params.TimeoutsAtMs = append(params.TimeoutsAtMs, timeoutAtMs)
			params.Inserted = append(params.Inserted, next.Inserted)
			params.Reclaims = append(params.Reclaims, 0)
			params.DeadlinesAtMs = append(params.DeadlinesAtMs, 0)
		}
		if len(claimed) == 0 {
			return nil, nil
		}
		tx.Due.Leases()
		return claimed, e.c.Q.LeaseTakenExecutions(ctx, tx, params)
	})
	if err != nil {
		return nil, err
	}
	e.learn(claimed, nil)
	return claimed, nil
}

// takeAttemptsOf returns the attempts of taken executions, ascending by index. If another transaction holds an attempt
// of an execution, the execution has no entry.
func (e *Engine) takeAttemptsOf(
	ctx context.Context, tx db.DBTX, taken []db.TakeClaimableRow,
) (map[id.ExecutionUUID][]db.TakeAttemptsOfRow, error) {
	var params db.TakeAttemptsOfParams
	for i := range taken {
		params.PartitionKeys = append(params.PartitionKeys, taken[i].PartitionKey)
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(taken[i].ExecutionID))
	}
	rows, err := e.c.Q.TakeAttemptsOf(ctx, tx, params)
	if err != nil {
		return nil, err
	}
	attempts := make(map[id.ExecutionUUID][]db.TakeAttemptsOfRow, len(taken))
	stored := make(map[id.ExecutionUUID]int, len(taken))
	for _, row := range rows {
		x := id.ExecutionUUID(row.ExecutionID.Bytes)
		stored[x] = int(row.Stored)
		if row.AttemptIndex >= 0 {
			attempts[x] = append(attempts[x], row)
		} else if row.Stored == 0 {
			attempts[x] = nil
		}
	}
	for x, n := range stored {
		if len(attempts[x]) < n {
			delete(attempts, x)
		}
	}
	return attempts, nil
}
