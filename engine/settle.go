package engine

import (
	"context"
	"errors"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// settling has the parts in which operations that end a lease differ: how to recognise and answer a repetition, and
// which rows to write for items whose fence holds.
type settling[R any] struct {
	// repeated reports whether the rows show that this very call succeeded before.
	repeated func(n int, facts *leaseFacts) bool
	// again returns the answer to a repetition: from the rows or, if facts is nil, from the result of the first
	// occurrence in the same batch.
	again   func(facts *leaseFacts, first R) R
	refused func(error) R

	// needsExclusive reports, from unlocked rows, whether an item will end a member without success; nil means never.
	needsExclusive func(n int, row db.LockExecutionsRow) bool

	// exclusive, if not nil, reports that shared locks of flows are not enough. write sets it and returns
	// [errFlowLock].
	exclusive *bool

	// write settles batch.acting, fills their results and returns the ended executions.
	write func(tx *txn, batch *settlementBatch, outcomes []R) ([]endedExecution, error)
}

// settlementBatch is a batch whose executions and attempts are locked. Items count from 0, in lock order.
type settlementBatch struct {
	leases []Lease
	rows   []db.LockExecutionsRow // zero for an execution that does not exist
	facts  []*leaseFacts
	busy   []bool // another transaction holds the item, so its row and facts decide nothing
	acting []int  // items whose fence holds; each execution once
	nowMs  int64
}

// settle ends leases in one transaction, by locking first and then judging each item. The leases are in lock order. It
// predicts from unlocked rows which flows to lock, and whether exclusively, and checks that under the locks.
//
// An impatient engine refuses locked items with [ErrBusy], and settles the rest. It skips locked executions, attempts
// and flows. If a dependent is locked (a group or a downstream execution), it halves the batch until that item is
// alone.
func settle[R any](ctx context.Context, e *Engine, op string, leases []Lease, s settling[R]) ([]R, error) {
	results := make([]R, len(leases))
	items := make([]int, len(leases))
	for n := range leases {
		items[n] = n
	}
	return results, s.settle(ctx, e, op, leases, items, results)
}

// settle fills the results of items. An error means that nothing happened to any of them.
func (s settling[R]) settle(ctx context.Context, e *Engine, op string, leases []Lease, items []int, results []R) error {
	return inParts(ctx, e, op, items, func(tx *txn, items []int) ([]int, error) {
		return s.run(ctx, e, tx, leases, items, results)
	}, func(n int, err error) { results[n] = s.refused(err) })
}

// run settles items in a transaction and returns those whose fence held. In a caller's transaction it settles all of
// them or none, and returns [errRefused] in that case.
func (s settling[R]) run(
	ctx context.Context, e *Engine, tx *txn, leases []Lease, items []int, results []R,
) (accepted []int, err error) {
	for _, n := range items {
		var none R // discard an earlier try that was rolled back
		results[n] = none
	}
	forecast, err := e.readRetryFacts(ctx, tx, arraysOf(leases, items))
	if err != nil {
		return nil, err
	}
	held := newFlowSet(e.cfg.Partitions)
	exclusive := s.exclusive != nil && *s.exclusive
	needs := func(n int, row db.LockExecutionsRow) bool {
		return row.FlowID != nil && (s.needsExclusive == nil || s.needsExclusive(n, row))
	}
	for ord, n := range items {
		if row := forecast[ord]; needs(n, row) {
			held.add(*row.FlowID)
			exclusive = exclusive || s.needsExclusive != nil
		}
	}
	if err := e.holdFlows(ctx, tx, held, exclusive); err != nil {
		return nil, err
	}
	free := make([]int, 0, len(items))
	for ord, n := range items {
		if row := forecast[ord]; needs(n, row) && !held.has(*row.FlowID) {
			results[n] = s.refused(errBusyFlow)
			continue
		}
		free = append(free, n)
	}

	batch, err := e.lockSettlement(ctx, tx, leases, free)
	if err != nil {
		return nil, err
	}
	for _, n := range free {
		if row := batch.rows[n]; !batch.busy[n] && needs(n, row) && !held.has(*row.FlowID) {
			return nil, errFlowLock
		}
	}
	first := make(map[id.ExecutionID]int, len(free))
	repeats := make(map[int]int)
	for _, n := range free {
		l := leases[n]
		verdict := batch.facts[n].fence(l, func(f *leaseFacts) bool { return s.repeated(n, f) })
		if _, absent := errors.AsType[*NotFoundError](verdict); !absent && batch.busy[n] {
			verdict = errBusyRow
		}
		switch {
		case verdict == nil:
			accepted = append(accepted, n)
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
	if e.tx != nil && len(accepted) < len(items) {
		return accepted, errRefused
	}
	if len(batch.acting) == 0 {
		return accepted, nil
	}
	ended, err := s.write(tx, batch, results)
	if err != nil {
		return nil, err
	}
	tx.due.leases()
	for n, at := range repeats {
		results[n] = s.again(nil, results[at])
	}
	return accepted, e.resolveAndRecord(ctx, tx, ended, batch.nowMs)
}

// readRetryFacts reads, without locks, the rows that predict the flow locks; by item from 0.
func (e *Engine) readRetryFacts(ctx context.Context, tx db.DBTX, arrays leaseArrays) (map[int]db.LockExecutionsRow, error) {
	rows, err := e.q.ReadRetryFacts(ctx, tx, db.ReadRetryFactsParams{
		PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
	})
	if err != nil {
		return nil, err
	}
	facts := make(map[int]db.LockExecutionsRow, len(rows))
	for _, row := range rows {
		facts[int(row.Ord)] = db.LockExecutionsRow{
			FlowID: row.FlowID, Policy: row.Policy, RetryCount: row.RetryCount, RawRetryCount: row.RawRetryCount,
		}
	}
	return facts, nil
}

// lockSettlement locks the executions, then the attempts, and then reads the values that the fences are judged by.
// Reading must be last: a statement that waits for a lock sees all other rows as before the wait. All three share a
// round trip.
func (e *Engine) lockSettlement(ctx context.Context, tx *txn, leases []Lease, items []int) (*settlementBatch, error) {
	batch := &settlementBatch{
		leases: leases,
		rows:   make([]db.LockExecutionsRow, len(leases)),
		facts:  make([]*leaseFacts, len(leases)),
		busy:   make([]bool, len(leases)),
	}
	if len(items) == 0 {
		return batch, nil
	}
	arrays := arraysOf(leases, items)
	var rows []db.LockExecutionsRow
	var attempts []int32
	var facts map[int]*leaseFacts
	lock := []step{
		func(conn db.DBTX) (err error) {
			rows, err = e.q.LockExecutions(ctx, conn, db.LockExecutionsParams{
				PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
			})
			return err
		},
		func(conn db.DBTX) (err error) {
			attempts, err = e.q.LockAttempts(ctx, conn, db.LockAttemptsParams{
				PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions, AttemptIndexes: arrays.attempts,
			})
			return err
		},
	}
	if e.runner.IsImpatient() {
		lock = []step{
			func(conn db.DBTX) error {
				taken, err := e.q.TakeExecutions(ctx, conn, db.TakeExecutionsParams{
					PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
				})
				rows = make([]db.LockExecutionsRow, len(taken))
				for i := range taken {
					rows[i] = db.LockExecutionsRow(taken[i])
				}
				return err
			},
			func(conn db.DBTX) (err error) {
				attempts, err = e.q.TakeAttempts(ctx, conn, db.TakeAttemptsParams{
					PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions, AttemptIndexes: arrays.attempts,
				})
				return err
			},
		}
	}
	if err := pgtx.InOneTrip(ctx, tx, append(lock, func(conn db.DBTX) (err error) {
		facts, err = e.readLeases(ctx, conn, arrays)
		return err
	})...); err != nil {
		return nil, err
	}
	locked := make([]int, len(items)) // of the two rows of each item
	for _, row := range rows {
		batch.rows[items[row.Ord]] = row
		locked[row.Ord]++
	}
	for _, ord := range attempts {
		locked[ord]++
	}
	for ord, n := range items {
		batch.busy[n] = e.runner.IsImpatient() && locked[ord] < 2
		if f := facts[ord]; f != nil {
			batch.facts[n], batch.nowMs = f, f.NowMs
		}
	}
	return batch, nil
}

// forgetSettled removes the remembered leases of items that a committed transaction settled or found lost.
func (e *Engine) forgetSettled(items []int, outcome func(i int) (Fence, error)) {
	if e.tx != nil {
		return
	}
	fences := make([]Fence, 0, len(items))
	for _, i := range items {
		if fence, err := outcome(i); !errors.Is(err, ErrBusy) {
			fences = append(fences, fence)
		}
	}
	e.leases.forget(fences)
}

func leasesOf(order []int, lease func(int) Lease) []Lease {
	leases := make([]Lease, len(order))
	for n, i := range order {
		leases[n] = lease(i)
	}
	return leases
}

// arraysOf converts some of the leases to arrays.
func arraysOf(leases []Lease, items []int) leaseArrays {
	arrays := newLeaseArrays(len(items))
	for _, n := range items {
		arrays.add(leases[n])
	}
	return arrays
}
