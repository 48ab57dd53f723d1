package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// heldLease is a lease whose execution and attempt are locked.
type heldLease struct {
	lockedExecution
	Lease
	facts *leaseFacts
}

func (x *heldLease) notFound() error { return x.facts.missing(x.Fence) }

// settlement returns the transition that ends leases: it acts on the items whose fence holds. repeated reports whether
// an item shows that this very call succeeded before, and again returns the answer then. An execution that is given
// twice in a chunk gets the outcome of the first.
func settlement[V any](
	e *Engine, op string, lease func(n int) *Lease, repeated func(x *heldLease) bool, again func(x *heldLease) V,
) transition[*heldLease, V] {
	return transition[*heldLease, V]{
		op: op,
		reader: reader[*heldLease]{
			e: e,
			item: func(n int) *heldLease {
				l := lease(n)
				return &heldLease{lockedExecution: lockedExecution{n: n, id: l.Execution}, Lease: *l}
			},
			foresee: e.readRetryFacts, lockAttempts: e.lockAttempts, read: e.readFacts,
		},
		outside: func(positions []int) bool {
			return e.leases.outside(len(positions), func(i int) *Lease { return lease(positions[i]) })
		},
		judge: func(x *heldLease) (answer V, acts bool, err error) {
			switch err := x.facts.fence(x.Fence, func(*leaseFacts) bool { return repeated(x) }); {
			case err == nil:
				return answer, true, nil
			case errors.Is(err, core.ErrRepeated):
				return again(x), false, nil
			default:
				return answer, false, err
			}
		},
	}
}

// settle runs a settlement, and forgets the leases that it settled or found lost. Those that it has ended need no check at
// their expiry.
func settle[V any](ctx context.Context, t transition[*heldLease, V], lease func(n int) *Lease, chunks [][]int, outcomes []Outcome[V]) error {
	items := slices.Concat(chunks...)
	if err := t.run(ctx, chunks, outcomes); err != nil {
		return err
	}
	ended := make([]Fence, 0, len(items))
	var lost []Fence // or kept
	for _, n := range items {
		_, isLost := errors.AsType[*fferr.LeaseError](outcomes[n].Err)
		switch {
		case isLost, errors.Is(outcomes[n].Err, fferr.ErrNotFound), outcomes[n].Err == nil && t.keeps != nil && t.keeps(n):
			lost = append(lost, lease(n).Fence)
		case outcomes[n].Err == nil:
			ended = append(ended, lease(n).Fence)
		}
	}
	t.e.ringStreams(ended)
	if t.e.c.Tx == nil {
		t.e.leases.ended(ended)
		t.e.leases.forget(lost)
	}
	return nil
}

// leaseChunks splits leases into transactions of up to [MaxBatch] items, of the bytes of one statement, and of as many
// flows as one may lock. The items of each are in lock order.
func leaseChunks(items []int, lease func(n int) *Lease, flow func(n int) *id.FlowID, size func(n int) int) (chunks [][]int) {
	for _, run := range core.BySize(items, MaxBatch, size) {
		flows, from := make(map[id.FlowID]bool), 0
		for i, n := range run {
			x := flow(n)
			if x == nil || flows[*x] {
				continue
			}
			if len(flows) == core.MaxFlowsPerTx {
				chunks, from = append(chunks, run[from:i]), i
				clear(flows)
			}
			flows[*x] = true
		}
		chunks = append(chunks, run[from:])
	}
	for _, chunk := range chunks {
		slices.SortStableFunc(chunk, func(a, b int) int { return compareLeases(*lease(a), *lease(b)) })
	}
	return chunks
}

// readRetryFacts reads, without locks, the rows that predict the flow locks.
func (e *Engine) readRetryFacts(ctx context.Context, conn db.DBTX, items []*heldLease) error {
	arrays := arraysOf(items)
	rows, err := e.c.Q.ReadRetryFacts(ctx, conn, db.ReadRetryFactsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
	})
	for _, row := range rows {
		items[row.Ord].row = db.LockExecutionsRow{
			FlowID: row.FlowID, Policy: row.Policy, RetryCount: row.RetryCount, RawRetryCount: row.RawRetryCount,
		}
	}
	return err
}

// lockAttempts locks the attempts of leases, or marks locked ones as busy if the engine is impatient.
func (e *Engine) lockAttempts(ctx context.Context, conn db.DBTX, items []*heldLease) error {
	arrays := arraysOf(items)
	if !e.c.Runner.IsImpatient() {
		_, err := e.c.Q.LockAttempts(ctx, conn, db.LockAttemptsParams{
			PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, AttemptIndexes: arrays.attempts,
		})
		return err
	}
	taken, err := e.c.Q.TakeAttempts(ctx, conn, db.TakeAttemptsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, AttemptIndexes: arrays.attempts,
	})
	free := make(map[int]bool, len(taken))
	for _, ord := range taken {
		free[int(ord)] = true
	}
	for ord, x := range items {
		x.busy = x.busy || !free[ord]
	}
	return err
}

// readFacts reads the values that the fences of locked leases check.
func (e *Engine) readFacts(ctx context.Context, conn db.DBTX, items []*heldLease) error {
	facts, err := e.readLeases(ctx, conn, arraysOf(items))
	for ord, x := range items {
		x.facts = facts[ord]
	}
	return err
}

// arraysOf converts leases to arrays.
func arraysOf(items []*heldLease) leaseArrays {
	arrays := newLeaseArrays(len(items))
	for _, x := range items {
		arrays.add(x.Fence)
	}
	return arrays
}
