package engine

import (
	"context"
	"errors"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// settling is what distinguishes the operations that end a lease: how a repetition is recognised and
// answered, and what is written for those whose fence holds.
type settling[R any] struct {
	// repeated tells from the rows that this very call succeeded before.
	repeated func(*leaseFacts) bool
	// again is the answer to a repetition: from the rows, or, with nil, from the outcome of the first
	// occurrence in the same batch.
	again   func(facts *leaseFacts, first R) R
	refused func(error) R

	// needsExclusive foresees from unlocked rows whether an item ends a member without success; nil: never.
	needsExclusive func(n int, row db.LockExecutionsRow) bool

	// write settles batch.acting, fills their outcomes and returns what ended.
	write func(tx *txn, batch *settlementBatch, outcomes []R) ([]endedExecution, error)
}

// settlementBatch is a batch whose executions and attempts are locked. Items count from 0, in lock order.
type settlementBatch struct {
	leases []Lease
	rows   []db.LockExecutionsRow // zero for an execution that does not exist
	facts  []*leaseFacts
	acting []int // items whose fence holds; each execution once
	nowMs  int64
}

// errFlowLock says that an operation found under its locks that it needs more of its flows' locks than
// it holds. It rolls back and starts again with them: a lock is never upgraded.
var errFlowLock = errors.New("needs the lock of a flow")

// settle ends leases by locking first and judging each item alone, all in one transaction. The leases
// are in lock order. Which flows are involved, and whether exclusively, is foreseen from unlocked rows
// and checked under the locks.
func settle[R any](ctx context.Context, e *Engine, op string, leases []Lease, s settling[R]) ([]R, error) {
	arrays := newLeaseArrays(len(leases))
	for _, l := range leases {
		arrays.add(l)
	}
	for {
		results, err := inTx(ctx, e, op, func(tx *txn) ([]R, error) {
			return s.run(ctx, e, tx, leases, arrays)
		})
		if !errors.Is(err, errFlowLock) {
			return results, err
		}
	}
}

func (s settling[R]) run(ctx context.Context, e *Engine, tx *txn, leases []Lease, arrays leaseArrays) ([]R, error) {
	forecast, err := e.readRetryFacts(ctx, tx, arrays)
	if err != nil {
		return nil, err
	}
	held := newFlowSet(e.cfg.Partitions)
	exclusive := false
	for n := range leases {
		row, ok := forecast[n]
		if !ok || row.FlowID == nil {
			continue
		}
		if s.needsExclusive == nil {
			held.add(*row.FlowID)
		} else if s.needsExclusive(n, row) {
			held.add(*row.FlowID)
			exclusive = true
		}
	}
	if exclusive {
		err = e.lockFlowsExclusive(ctx, tx, held)
	} else {
		err = inOneTrip(ctx, tx, e.shareFlows(ctx, held)...)
	}
	if err != nil {
		return nil, err
	}

	batch, err := e.lockSettlement(ctx, tx, leases, arrays)
	if err != nil {
		return nil, err
	}
	for n, row := range batch.rows {
		needs := row.FlowID != nil && (s.needsExclusive == nil || s.needsExclusive(n, row))
		if needs && !held.has(*row.FlowID) {
			return nil, errFlowLock
		}
	}
	results := make([]R, len(leases))
	first := make(map[id.ExecutionID]int, len(leases))
	repeats := make(map[int]int)
	for n, l := range leases {
		switch verdict := batch.facts[n].fence(l, s.repeated); {
		case verdict == nil:
			if at, ok := first[l.Execution]; ok {
				repeats[n] = at
				continue
			}
			first[l.Execution] = n
			batch.acting = append(batch.acting, n)
		case errors.Is(verdict, errRepeated):
			var none R
			results[n] = s.again(batch.facts[n], none)
		default:
			results[n] = s.refused(verdict)
		}
	}
	if len(batch.acting) == 0 {
		return results, nil
	}
	ended, err := s.write(tx, batch, results)
	if err != nil {
		return nil, err
	}
	tx.rings.leases()
	for n, at := range repeats {
		results[n] = s.again(nil, results[at])
	}
	return results, e.resolveAndRecord(ctx, tx, ended, batch.nowMs)
}

// readRetryFacts reads, without locks, the rows that the flow locks are foreseen from; by item from 0.
func (e *Engine) readRetryFacts(ctx context.Context, tx db.DBTX, arrays leaseArrays) (map[int]db.LockExecutionsRow, error) {
	rows, err := e.q.ReadRetryFacts(ctx, tx, db.ReadRetryFactsParams{
		PartitionKeys: arrays.partitions, ExecutionIds: arrays.executions,
	})
	if err != nil {
		return nil, err
	}
	facts := make(map[int]db.LockExecutionsRow, len(rows))
	for _, row := range rows {
		facts[int(row.Ord)-1] = db.LockExecutionsRow{
			FlowID: row.FlowID, Policy: row.Policy, RetryCount: row.RetryCount, RawRetryCount: row.RawRetryCount,
		}
	}
	return facts, nil
}

// lockSettlement locks the executions, then the attempts, and reads what the fences are judged by after
// both: a statement that waits for a lock sees everything else as it was before the wait.
func (e *Engine) lockSettlement(ctx context.Context, tx db.DBTX, leases []Lease, arrays leaseArrays) (*settlementBatch, error) {
	batch := &settlementBatch{
		leases: leases,
		rows:   make([]db.LockExecutionsRow, len(leases)),
		facts:  make([]*leaseFacts, len(leases)),
	}
	rows, err := e.q.LockExecutions(ctx, tx, db.LockExecutionsParams{
		PartitionKeys: arrays.partitions, ExecutionIds: arrays.executions,
	})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		batch.rows[row.Ord-1] = row
	}
	if _, err := e.q.LockAttempts(ctx, tx, db.LockAttemptsParams{
		PartitionKeys: arrays.partitions, ExecutionIds: arrays.executions, AttemptIndexes: arrays.attempts,
	}); err != nil {
		return nil, err
	}
	facts, err := e.readLeases(ctx, tx, arrays)
	if err != nil {
		return nil, err
	}
	for ord, f := range facts {
		batch.facts[ord-1] = f
		batch.nowMs = f.NowMs
	}
	return batch, nil
}

func leasesOf(order []int, lease func(int) Lease) []Lease {
	leases := make([]Lease, len(order))
	for n, i := range order {
		leases[n] = lease(i)
	}
	return leases
}
