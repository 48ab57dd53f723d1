package engine

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// spareCandidates is how many extra rows the slow path takes, so that rows it can't lease don't hide those after them.
const spareCandidates = 100

// claimSlowly claims from the head of the lane by locking first and checking each row. It handles every claimable row,
// however another program left its attempts: a pointer that matches no attempt row, a finished attempt in place of the
// next one, or an epoch that another program raised.
func (e *Engine) claimSlowly(ctx context.Context, spec ClaimSpec, n int) ([]Claimed, error) {
	claimed, err := core.InTx(ctx, e.c, "claim", func(tx *core.Txn) ([]Claimed, error) {
		taken, err := e.c.Q.TakeClaimable(ctx, tx, db.TakeClaimableParams{
			LaneID:       string(spec.Lane),
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
			next, ok := chooseAttempt(row, had, nowMs)
			if !ok {
				continue
			}
			if next.id.IsZero() {
				next.id = attemptIDs[i]
			}
			x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
			c := Claimed{
				ID:        x,
				Lease:     spec.lease(id.Fence{Execution: x, Attempt: int(next.index), Epoch: next.epoch}, leaseIDs[i], next.id),
				ExpiresAt: time.UnixMilli(core.AddTTL(nowMs, spec.LeaseTTL.Milliseconds())),
				Kind:      row.ExecutionKind,
				Payload:   row.Payload,
				Tags:      core.DecodeTags(row.Tags),
				Flow:      row.FlowID,
				Priority:  int(row.Priority),
				CreatedAt: time.UnixMilli(row.CreatedAtMs),
				Type:      next.kind,
				Resumed:   next.resumed,
				Retries:   int(row.RetryCount),
			}
			var timeoutAtMs int64
			if row.AttemptTimeoutMs > 0 {
				timeoutAtMs = core.AddTTL(nowMs, row.AttemptTimeoutMs)
				c.TimeoutAt = time.UnixMilli(timeoutAtMs)
			}
			claimed = append(claimed, c)
			params.PartitionKeys = append(params.PartitionKeys, row.PartitionKey)
			params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(row.ExecutionID))
			params.AttemptIndexes = append(params.AttemptIndexes, next.index)
			params.AttemptTypes = append(params.AttemptTypes, string(next.kind))
			params.AttemptIDs = append(params.AttemptIDs, core.PgUUID(next.id))
			params.LeaseIDs = append(params.LeaseIDs, core.PgUUID(leaseIDs[i]))
			params.LeaseEpochs = append(params.LeaseEpochs, next.epoch)
			params.TimeoutsAtMs = append(params.TimeoutsAtMs, timeoutAtMs)
			params.Inserted = append(params.Inserted, next.inserted)
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

// nextAttempt is the attempt that a claim continues or opens.
type nextAttempt struct {
	index    int32
	kind     state.AttemptType
	id       id.AttemptID // zero for a new one
	epoch    int64
	inserted bool
	resumed  bool
}

// chooseAttempt picks the attempt for an execution's next lease from its rows, ascending by index. An interrupted
// attempt continues. A pending one opens at the pointer, or after the last row if a finished attempt is there. It
// returns false if the row has a live lease and belongs to another holder.
func chooseAttempt(row *db.TakeClaimableRow, attempts []db.TakeAttemptsOfRow, nowMs int64) (nextAttempt, bool) {
	next := nextAttempt{index: row.AttemptIndex, kind: state.InitialAttempt, inserted: true}
	prior, err := normalise.AttemptState(row.AttemptState)
	if err != nil {
		return next, false
	}
	var at *db.TakeAttemptsOfRow // the row that gets the lease
	switch prior {
	case state.AttemptInterrupted:
		for i := range attempts {
			if attempts[i].AttemptIndex <= row.AttemptIndex {
				at = &attempts[i]
			}
		}
	default:
		for i := range attempts {
			if attempts[i].AttemptIndex == row.AttemptIndex {
				at = &attempts[i]
			}
		}
		if at != nil && prior != state.PendingReplayAttempt && (at.TerminalAtMs != nil || at.Outcome != nil) {
			at = nil
			next.index = attempts[len(attempts)-1].AttemptIndex + 1
		}
	}
	switch prior {
	case state.PendingRetryAttempt:
		next.kind = state.RetryAttempt
	case state.PendingReplayAttempt:
		next.kind = state.ReplayAttempt
	}
	highest := row.HighestEpoch
	if at != nil {
		if at.LeaseExpiresAtMs != nil && *at.LeaseExpiresAtMs > nowMs {
			return next, false
		}
		next.index, next.inserted = at.AttemptIndex, false
		next.resumed = prior == state.AttemptInterrupted
		highest = max(highest, at.LeaseEpoch)
		if at.FfxAttemptID != nil {
			next.id = *at.FfxAttemptID
		}
		if next.resumed && at.FfxAttemptType != nil {
			if kind, err := normalise.AttemptType(*at.FfxAttemptType); err == nil {
				next.kind = kind
			}
		}
	}
	next.epoch = highest + 1
	return next, true
}
