package engine

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
)

// Progress is what a worker tells about a running attempt. A nil field leaves what was reported before.
type Progress struct {
	Percent *int    // 0 to 100
	Message *string // at most 1024 bytes
}

// ReportProgress records the progress of the attempt that l holds. It extends no lease.
//
// Errors, in a [*LeaseError]: [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] and [ErrNotActive]; the
// caller stops work. [ErrInvalidInput]; [ErrNotFound].
//
// Transaction: four statements; locks the execution, then its attempt, and waits for them up to two seconds, three
// times. No events. Safe to repeat.
func (e *Engine) ReportProgress(ctx context.Context, l Lease, p Progress) error {
	const op = "report progress"
	if err := e.checkProgress(l, p); err != nil {
		return wrap(op, err)
	}
	_, err := inTx(ctx, e, op, func(tx *txn) (struct{}, error) {
		batch, err := e.lockSettlement(ctx, tx, []Lease{l}, []int{0})
		if err != nil {
			return struct{}{}, err
		}
		if err := batch.facts[0].fence(l, nil); err != nil {
			return struct{}{}, err
		}
		params := db.UpdateProgressParams{
			Message: p.Message, NowMs: batch.nowMs, PartitionKey: l.Execution.Partition(), ExecutionID: l.Execution.UUID(),
		}
		if p.Percent != nil {
			params.Percent = new(int32(*p.Percent))
		}
		return struct{}{}, e.q.UpdateProgress(ctx, tx, params)
	})
	return err
}

func (e *Engine) checkProgress(l Lease, p Progress) error {
	if p.Percent != nil && (*p.Percent < 0 || *p.Percent > 100) {
		return invalid("percent", "must be between 0 and 100")
	}
	if p.Message != nil {
		if err := checkText("message", *p.Message, maxFreeText); err != nil {
			return err
		}
	}
	return e.checkLease(l)
}

// ReleaseLeases gives unfinished work back to its lane at once, [MaxBatch] to a transaction: the same
// attempt goes on with the next claim, and no retry is used up. Outcomes stand in input order, nil for a
// lease that was given back; a lost lease affects only its own. The error means that nothing happened.
//
// Errors of an item as [Engine.RenewLease]; [ErrBusy]: somebody else holds its rows, and the caller repeats it.
// Transaction: a constant number of statements; locks the executions, then their attempts, and waits for nobody.
// Emits lease events. Safe to repeat.
func (e *Engine) ReleaseLeases(ctx context.Context, leases []Lease) ([]error, error) {
	const op = "release leases"
	e = e.impatient()
	outcomes := make([]error, len(leases))
	var order []int
	for i, l := range leases {
		if outcomes[i] = e.checkLease(l); outcomes[i] == nil {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareLeases(leases[a], leases[b]) })
	err := inChunks(len(order), MaxBatch, func(from, to int) error {
		chunk := order[from:to]
		settled, err := settle(ctx, e, op, leasesOf(chunk, func(i int) Lease { return leases[i] }), e.releasing(ctx))
		for n, i := range chunk {
			if err == nil {
				outcomes[i] = settled[n]
			}
		}
		if err == nil {
			e.forgetSettled(chunk, func(i int) (Fence, error) { return leases[i].Fence, outcomes[i] })
		}
		return err
	}, func(n int, err error) { outcomes[order[n]] = err })
	return outcomes, err
}

func (e *Engine) releasing(ctx context.Context) settling[error] {
	return settling[error]{
		repeated:       func(f *leaseFacts) bool { return f.AttemptOutcome == "interrupted" && f.LifecyclePhase != "active" },
		again:          func(*leaseFacts, error) error { return nil },
		refused:        func(err error) error { return err },
		needsExclusive: func(int, db.LockExecutionsRow) bool { return false },
		write: func(tx *txn, batch *settlementBatch, _ []error) ([]endedExecution, error) {
			params := db.ReleaseLeasesParams{NowMs: batch.nowMs}
			var slots executionArrays
			for _, n := range batch.acting {
				l := batch.leases[n]
				params.PartitionKeys = append(params.PartitionKeys, l.Execution.Partition())
				params.ExecutionIds = append(params.ExecutionIds, pgUUID(l.Execution.UUID()))
				params.AttemptIndexes = append(params.AttemptIndexes, int32(l.Attempt))
				if batch.rows[n].HasQuota {
					slots.add(l.Execution.Partition(), l.Execution.UUID())
				}
			}
			lanes, err := e.q.ReleaseLeases(ctx, tx, params)
			if err != nil {
				return nil, err
			}
			for _, lane := range lanes {
				tx.due.lane(lane)
			}
			if slots.empty() {
				return nil, nil
			}
			return nil, e.q.ReleaseQuotaSlots(ctx, tx, db.ReleaseQuotaSlotsParams{
				PartitionKeys: slots.partitions, ExecutionIds: slots.executions,
			})
		},
	}
}
