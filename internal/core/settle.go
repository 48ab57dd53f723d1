package core

import (
	"context"
	"errors"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// HeldLease is a lease whose execution and attempt are locked.
type HeldLease struct {
	LockedExecution
	id.Fence
	Facts *LeaseFacts
}

func (x *HeldLease) notFound() error { return x.Facts.missing(x.Fence) }

// Settlement returns the transition for ending leases: it acts on the items whose fence holds. repeated reports whether
// an item shows an earlier success of the very same call, and again returns the answer then. An execution given twice
// in a chunk gets the outcome of the first.
func Settlement[V any](
	c *Core, op string, lease func(n int) id.Fence, repeated func(x *HeldLease) bool, again func(x *HeldLease) V,
) Transition[*HeldLease, V] {
	return Transition[*HeldLease, V]{
		Op: op,
		Reader: Reader[*HeldLease]{
			c: c,
			item: func(n int) *HeldLease {
				l := lease(n)
				return &HeldLease{LockedExecution: LockedExecution{N: n, ID: l.Execution}, Fence: l}
			},
			foresee: c.readRetryFacts, lockAttempts: c.lockAttempts, read: c.readFacts,
		},
		outside: func(positions []int) bool {
			return c.Leases.outside(len(positions), func(i int) id.Fence { return lease(positions[i]) })
		},
		Judge: func(x *HeldLease) (answer V, acts bool, err error) {
			switch err := x.Facts.Fence(x.Fence, func(*LeaseFacts) bool { return repeated(x) }); {
			case err == nil:
				return answer, true, nil
			case errors.Is(err, ErrRepeated):
				return again(x), false, nil
			default:
				return answer, false, err
			}
		},
	}
}

// Settle runs a settlement, and forgets the settled and lost leases. Ended leases need no check at their expiry.
func Settle[V any](ctx context.Context, t Transition[*HeldLease, V], lease func(n int) id.Fence, chunks [][]int, outcomes []fferr.Outcome[V]) error {
	items := slices.Concat(chunks...)
	if err := t.Run(ctx, chunks, outcomes); err != nil {
		return err
	}
	ended := make([]id.Fence, 0, len(items))
	var lost []id.Fence // or kept
	for _, n := range items {
		_, isLost := errors.AsType[*fferr.LeaseError](outcomes[n].Err)
		switch {
		case isLost, errors.Is(outcomes[n].Err, fferr.ErrNotFound), outcomes[n].Err == nil && t.Keeps != nil && t.Keeps(n):
			lost = append(lost, lease(n))
		case outcomes[n].Err == nil:
			ended = append(ended, lease(n))
		}
	}
	t.c.NotifyStreams(ended)
	if t.c.Tx == nil {
		t.c.Leases.Ended(ended)
		t.c.Leases.Forget(lost)
	}
	return nil
}

// LeaseChunks splits leases into transactions of up to MaxBatch items, of the bytes of one statement, and of as many
// flows as one may lock. The items of each are in lock order.
func LeaseChunks(items []int, lease func(n int) id.Fence, flow func(n int) *id.FlowID, size func(n int) int) (chunks [][]int) {
	for _, run := range BySize(items, MaxBatch, size) {
		flows, from := make(map[id.FlowID]bool), 0
		for i, n := range run {
			x := flow(n)
			if x == nil || flows[*x] {
				continue
			}
			if len(flows) == MaxFlowsPerTx {
				chunks, from = append(chunks, run[from:i]), i
				clear(flows)
			}
			flows[*x] = true
		}
		chunks = append(chunks, run[from:])
	}
	for _, chunk := range chunks {
		slices.SortStableFunc(chunk, func(a, b int) int { return lease(a).Compare(lease(b)) })
	}
	return chunks
}

// readRetryFacts reads, without locks, the rows for predicting the flow locks.
func (c *Core) readRetryFacts(ctx context.Context, conn db.DBTX, items []*HeldLease) error {
	arrays := arraysOf(items)
	rows, err := c.Q.ReadRetryFacts(ctx, conn, db.ReadRetryFactsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
	})
	for _, row := range rows {
		items[row.Ord].Row = db.LockExecutionsRow{
			FlowID: row.FlowID, Policy: row.Policy, RetryCount: row.RetryCount, RawRetryCount: row.RawRetryCount,
		}
	}
	return err
}

// lockAttempts locks the attempts of leases, or marks locked ones as busy under a short wait.
func (c *Core) lockAttempts(ctx context.Context, conn db.DBTX, items []*HeldLease) error {
	arrays := arraysOf(items)
	if !c.Runner.HasShortWait() {
		_, err := c.Q.LockAttempts(ctx, conn, db.LockAttemptsParams{
			PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, AttemptIndexes: arrays.Attempts,
		})
		return err
	}
	taken, err := c.Q.TakeAttempts(ctx, conn, db.TakeAttemptsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, AttemptIndexes: arrays.Attempts,
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

// readFacts reads the values checked by the fences of locked leases.
func (c *Core) readFacts(ctx context.Context, conn db.DBTX, items []*HeldLease) error {
	facts, err := c.ReadLeases(ctx, conn, arraysOf(items))
	for ord, x := range items {
		x.Facts = facts[ord]
	}
	return err
}

// arraysOf converts leases to arrays.
func arraysOf(items []*HeldLease) LeaseArrays {
	arrays := NewLeaseArrays(len(items))
	for _, x := range items {
		arrays.Add(x.Fence)
	}
	return arrays
}

// UnderLease runs act for the holder of a lease, with the execution and attempt locked, and leaves the lease unchanged.
func UnderLease[V any](
	ctx context.Context, c *Core, op string, l id.Fence, act func(ctx context.Context, tx *Txn, x *HeldLease) (V, error),
) (V, error) {
	return UnderLocks(ctx, c, op, l, NoFlow, act)
}

// UnderLocks is UnderLease, but first locks the flow of a member.
func UnderLocks[V any](
	ctx context.Context, c *Core, op string, l id.Fence, lock FlowLock,
	act func(ctx context.Context, tx *Txn, x *HeldLease) (V, error),
) (answer V, err error) {
	if err := c.CheckLease(l); err != nil {
		return answer, Wrap(op, err)
	}
	t := Settlement(c, op, func(int) id.Fence { return l },
		func(*HeldLease) bool { return false },
		func(*HeldLease) (none V) { return none },
	)
	if lock != NoFlow {
		t.Needs = func(*HeldLease) FlowLock { return lock }
	}
	t.Write = func(ctx context.Context, tx *Txn, items []*HeldLease, outcomes []fferr.Outcome[V]) (err error) {
		outcomes[0].Value, err = act(ctx, tx, items[0])
		return err
	}
	outcomes := make([]fferr.Outcome[V], 1)
	if err := t.Run(ctx, [][]int{{0}}, outcomes); err != nil {
		return answer, err
	}
	return outcomes[0].Value, outcomes[0].Err
}
