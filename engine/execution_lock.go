package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// executionReader returns the reader of transitions that change executions by their ids, whether or not they are leased.
func executionReader(e *Engine, ids []id.ExecutionID) reader[*heldExecution] {
	return reader[*heldExecution]{
		e: e,
		item: func(n int) *heldExecution {
			return &heldExecution{lockedExecution: lockedExecution{n: n, id: ids[n]}}
		},
		foresee: e.readForecasts, lockAttempts: e.lockCurrent, read: e.readHeld,
	}
}

// executionChunks splits executions into transactions of up to [MaxBatch], each in lock order and without repetitions:
// a repeated execution is judged by the result of the first occurrence.
func executionChunks(ids []id.ExecutionID, items []int) (chunks [][]int) {
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

// readForecasts reads, without locks, the values that foresee which flows are needed: flow, phase, lost leases.
func (e *Engine) readForecasts(ctx context.Context, conn db.DBTX, items []*heldExecution) error {
	arrays := heldArrays(items)
	rows, err := e.q.ReadExecutionForecasts(ctx, conn, db.ReadExecutionForecastsParams{
		PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions, Ords: arrays.ords(), DefaultCap: policy.ReclaimLimit,
	})
	for _, row := range rows {
		x := items[row.Ord]
		x.row.FlowID = row.FlowID
		x.ReadHeldExecutionsRow = &db.ReadHeldExecutionsRow{
			FlowID: row.FlowID, LifecyclePhase: row.LifecyclePhase, LostTooOften: row.LostTooOften,
		}
	}
	return err
}

// lockCurrent locks the current attempts, or marks locked ones as busy if the engine is impatient.
func (e *Engine) lockCurrent(ctx context.Context, conn db.DBTX, items []*heldExecution) error {
	arrays := heldArrays(items)
	if !e.runner.IsImpatient() {
		return e.q.LockCurrentAttempts(ctx, conn, db.LockCurrentAttemptsParams{
			PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
		})
	}
	rows, err := e.q.TakeCurrentAttempts(ctx, conn, db.TakeCurrentAttemptsParams{
		PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
	})
	busy := make(map[id.ExecutionUUID]bool, len(rows))
	for _, row := range rows {
		busy[row.ExecutionID] = row.Busy
	}
	for _, x := range items {
		x.busy = x.busy || busy[x.id.UUID()]
	}
	return err
}

// readHeld reads the values that decide about locked executions.
func (e *Engine) readHeld(ctx context.Context, conn db.DBTX, items []*heldExecution) error {
	arrays := heldArrays(items)
	rows, err := e.q.ReadHeldExecutions(ctx, conn, db.ReadHeldExecutionsParams{
		PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions, Ords: arrays.ords(),
		DefaultCap: policy.ReclaimLimit, NowMs: e.nowMs(),
	})
	for i := range rows {
		items[rows[i].Ord].ReadHeldExecutionsRow = &rows[i]
	}
	return err
}

func heldArrays(items []*heldExecution) (arrays executionArrays) {
	for _, x := range items {
		arrays.add(x.id.Partition(), x.id.UUID())
	}
	return arrays
}

// An operation is a call that changes one execution. R is its answer.
type operation[R any] struct {
	op string // prefix of every error

	// needsFlow reports whether the exclusive lock of a member's flow is needed. It may look at the phase and the lost
	// leases; nil means never.
	needsFlow func(x *heldExecution) bool

	// judge decides from the values read under the locks. If acts, write changes the execution and returns the answer.
	// Otherwise nothing is written, and answer or err is the result.
	judge func(x *heldExecution) (answer R, acts bool, err error)
	write func(tx *txn, x *heldExecution) (R, error)
}

// operate runs an operation on an execution. It waits for locks like the engine's other transactions.
func operate[R any](ctx context.Context, e *Engine, x id.ExecutionID, o operation[R]) (answer R, err error) {
	if err := e.checkExecution(x); err != nil {
		return answer, wrap(o.op, err)
	}
	t := transition[*heldExecution, R]{
		op: o.op, reader: executionReader(e, []id.ExecutionID{x}),
		judge: func(x *heldExecution) (answer R, acts bool, err error) {
			if err := x.check(); err != nil {
				return answer, false, err
			}
			return o.judge(x)
		},
		write: func(_ context.Context, tx *txn, items []*heldExecution, outcomes []Outcome[R]) (err error) {
			outcomes[0].Value, err = o.write(tx, items[0])
			return err
		},
	}
	if o.needsFlow != nil {
		t.needs = func(x *heldExecution) flowLock {
			if o.needsFlow(x) {
				return exclusiveFlow
			}
			return noFlow
		}
	}
	outcomes := make([]Outcome[R], 1)
	err = t.run(ctx, [][]int{{0}}, outcomes)
	return outcomes[0].Value, cmp.Or(err, outcomes[0].Err)
}
