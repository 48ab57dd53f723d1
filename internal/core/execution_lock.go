package core

import (
	"cmp"
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// ExecutionReader returns the reader for transitions of executions by id, leased or not.
func ExecutionReader(c *Core, ids []id.ExecutionID) Reader[*HeldExecution] {
	return Reader[*HeldExecution]{
		c: c,
		item: func(n int) *HeldExecution {
			return &HeldExecution{LockedExecution: LockedExecution{N: n, ID: ids[n]}}
		},
		foresee: c.readForecasts, lockAttempts: c.lockCurrent, read: c.readHeld,
	}
}

// ExecutionChunks splits executions into transactions of up to MaxBatch, each in lock order and without repetitions:
// a repeated execution gets the result of the first occurrence.
func ExecutionChunks(ids []id.ExecutionID, items []int) (chunks [][]int) {
	slices.SortStableFunc(items, func(a, b int) int { return ids[a].Compare(ids[b]) })
	for len(items) > 0 {
		var first, again []int
		for i, n := range items {
			if i > 0 && ids[n] == ids[items[i-1]] {
				again = append(again, n)
			} else {
				first = append(first, n)
			}
		}
		chunks = slices.AppendSeq(chunks, slices.Chunk(first, MaxBatch))
		items = again
	}
	return chunks
}

// readForecasts reads, without locks, the values for predicting the needed flows: flow, phase, lost leases.
func (c *Core) readForecasts(ctx context.Context, conn db.DBTX, items []*HeldExecution) error {
	arrays := HeldArrays(items)
	rows, err := c.Q.ReadExecutionForecasts(ctx, conn, db.ReadExecutionForecastsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, Ords: arrays.Ords(), DefaultCap: policy.ReclaimLimit,
	})
	for _, row := range rows {
		x := items[row.Ord]
		x.Row.FlowID = row.FlowID
		x.ReadHeldExecutionsRow = &db.ReadHeldExecutionsRow{
			FlowID: row.FlowID, LifecyclePhase: row.LifecyclePhase, LostTooOften: row.LostTooOften,
		}
	}
	return err
}

// lockCurrent locks the current attempts, or marks locked ones as busy under a short wait.
func (c *Core) lockCurrent(ctx context.Context, conn db.DBTX, items []*HeldExecution) error {
	arrays := HeldArrays(items)
	if !c.Runner.HasShortWait() {
		return c.Q.LockCurrentAttempts(ctx, conn, db.LockCurrentAttemptsParams{
			PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
		})
	}
	rows, err := c.Q.TakeCurrentAttempts(ctx, conn, db.TakeCurrentAttemptsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
	})
	busy := make(map[id.ExecutionUUID]bool, len(rows))
	for _, row := range rows {
		busy[row.ExecutionID] = row.Busy
	}
	for _, x := range items {
		x.busy = x.busy || busy[x.ID.UUID()]
	}
	return err
}

// readHeld reads the deciding values of locked executions.
func (c *Core) readHeld(ctx context.Context, conn db.DBTX, items []*HeldExecution) error {
	arrays := HeldArrays(items)
	rows, err := c.Q.ReadHeldExecutions(ctx, conn, db.ReadHeldExecutionsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, Ords: arrays.Ords(),
		DefaultCap: policy.ReclaimLimit, NowMs: c.NowMs(),
	})
	for i := range rows {
		items[rows[i].Ord].ReadHeldExecutionsRow = &rows[i]
	}
	return err
}

func HeldArrays(items []*HeldExecution) (arrays ExecutionArrays) {
	for _, x := range items {
		arrays.Add(x.ID.Partition(), x.ID.UUID())
	}
	return arrays
}

// An Operation changes one execution. R is the answer.
type Operation[R any] struct {
	Op string // prefix of every error

	// NeedsFlow reports whether the exclusive lock of a member's flow is needed. Only the phase and the lost leases are
	// known then; nil means never.
	NeedsFlow func(x *HeldExecution) bool

	// ReadMore reads more values for the decision. Nil: none.
	ReadMore func(ctx context.Context, conn db.DBTX, items []*HeldExecution) error

	// LockKeys locks keys before the executions. Nil: none.
	LockKeys func(ctx context.Context, conn db.DBTX, items []*HeldExecution) error

	// Judge decides from the values read under the locks. If acts, write changes the execution and returns the answer.
	// Otherwise nothing is written, and answer or err is the result.
	Judge func(x *HeldExecution) (answer R, acts bool, err error)
	Write func(tx *Txn, x *HeldExecution) (R, error)
}

// Operate runs an operation on an execution, and waits for locks like the engine's other transactions.
func Operate[R any](ctx context.Context, c *Core, x id.ExecutionID, o Operation[R]) (answer R, err error) {
	if err := c.CheckExecution(x); err != nil {
		return answer, Wrap(o.Op, err)
	}
	t := o.Transition(c, []id.ExecutionID{x})
	t.Write = func(_ context.Context, tx *Txn, items []*HeldExecution, outcomes []fferr.Outcome[R]) (err error) {
		outcomes[0].Value, err = o.Write(tx, items[0])
		return err
	}
	outcomes := make([]fferr.Outcome[R], 1)
	err = t.Run(ctx, [][]int{{0}}, outcomes)
	return outcomes[0].Value, cmp.Or(err, outcomes[0].Err)
}

// Transition returns the operation on executions, without its write.
func (o *Operation[R]) Transition(c *Core, ids []id.ExecutionID) Transition[*HeldExecution, R] {
	t := Transition[*HeldExecution, R]{
		Op: o.Op, Reader: ExecutionReader(c, ids),
		Judge: func(x *HeldExecution) (answer R, acts bool, err error) {
			if err := x.check(); err != nil {
				return answer, false, err
			}
			return o.Judge(x)
		},
	}
	t.readMore = o.ReadMore
	t.lockKeys = o.LockKeys
	if o.NeedsFlow != nil {
		t.Needs = func(x *HeldExecution) FlowLock {
			if o.NeedsFlow(x) {
				return ExclusiveFlow
			}
			return NoFlow
		}
	}
	return t
}
