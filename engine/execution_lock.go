package engine

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/policy"
)

// An intervention is a call that changes executions by their ids, whether or not they are leased. It is an operator's
// call, not a lease holder's. R is the answer for each of them.
type intervention[R any] struct {
	op string // prefix of every error

	// needsFlow reports whether the exclusive lock of a member's flow is needed. It is called with unlocked rows first,
	// and again under the locks; nil means never.
	needsFlow func(n int, x forecast) bool

	// judge decides about an item from the values read under its locks. If acts, write changes it. Otherwise nothing is
	// written, and answer or err is the item's result.
	judge func(n int, x *heldExecution) (answer R, acts bool, err error)

	// write changes items, which are in lock order and have distinct executions, and fills their answers.
	write func(tx *txn, items []heldItem, answers []R) error

	refused func(error) R
}

// heldItem is an item that an intervention changes.
type heldItem struct {
	n int
	*heldExecution
}

// intervene runs v on executions, each independently, and returns the answers in input order. It uses transactions of
// up to [MaxBatch] executions and of as many flows as one may lock. Items that check refuses are left out; check may be
// nil. A repeated execution is judged by the result of the first occurrence. An error means that nothing happened.
//
// For a single execution it waits for locks like the engine's other transactions. An impatient engine refuses locked
// executions with [ErrBusy], and changes the rest.
func intervene[R any](
	ctx context.Context, e *Engine, ids []id.ExecutionID, check func(i int) error, v intervention[R],
) ([]R, error) {
	answers := make([]R, len(ids))
	var order []int
	for i, x := range ids {
		err := e.checkExecution(x)
		if err == nil && check != nil {
			err = check(i)
		}
		if err != nil {
			answers[i] = v.refuse(err)
			continue
		}
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return ids[a].Compare(ids[b]) })
	var chunks [][]int
	for len(order) > 0 {
		var first, again []int
		for n, i := range order {
			if n > 0 && ids[i] == ids[order[n-1]] {
				again = append(again, i)
			} else {
				first = append(first, i)
			}
		}
		chunks = slices.AppendSeq(chunks, slices.Chunk(first, MaxBatch))
		order = again
	}
	err := inChunks(len(chunks), 1, func(n, _ int) error {
		return inParts(ctx, e, v.op, chunks[n], func(tx *txn, items []int) ([]int, error) {
			return v.run(ctx, e, tx, ids, items, answers)
		}, func(n int, err error) { answers[n] = v.refused(err) })
	}, func(n int, err error) {
		for _, i := range chunks[n] {
			answers[i] = v.refused(err)
		}
	})
	return answers, err
}

// run runs v on items in a transaction and returns the changed ones. In a caller's transaction it changes all of them
// or none, and returns [errRefused] in that case.
func (v intervention[R]) run(
	ctx context.Context, e *Engine, tx *txn, ids []id.ExecutionID, items []int, answers []R,
) (acted []int, err error) {
	held, free, err := v.holdFlows(ctx, e, tx, ids, items, answers)
	if err != nil {
		return nil, err
	}
	executions, err := e.lockExecutions(ctx, tx, ids, free)
	if err != nil {
		return nil, err
	}
	var acting []heldItem
	for ord, n := range free {
		x := executions[ord]
		switch {
		case x.ReadHeldExecutionsRow == nil:
			answers[n] = v.refuse(&NotFoundError{Entity: "execution", ID: ids[n].String()})
			continue
		case x.busy:
			answers[n] = v.refuse(errBusyRow)
			continue
		case v.needs(n, x.forecast()) && !held.has(*x.FlowID):
			return nil, errFlowLock
		}
		answer, acts, err := v.judge(n, x)
		switch {
		case err != nil:
			answers[n] = v.refuse(err)
		case acts:
			acted, acting = append(acted, n), append(acting, heldItem{n, x})
		default:
			answers[n] = answer
		}
	}
	if e.tx != nil && len(acted) < len(items) {
		return acted, errRefused
	}
	if len(acting) == 0 {
		return nil, nil
	}
	return acted, v.write(tx, acting, answers)
}

// refuse returns the answer to an item for which nothing was written.
func (v intervention[R]) refuse(err error) R { return v.refused(wrap(v.op, err)) }

func (v intervention[R]) needs(n int, x forecast) bool {
	return v.needsFlow != nil && x.flow != nil && v.needsFlow(n, x)
}

// holdFlows locks the flows that items are expected to need, and returns the items whose flows it locked.
func (v intervention[R]) holdFlows(
	ctx context.Context, e *Engine, tx *txn, ids []id.ExecutionID, items []int, answers []R,
) (held *flowSet, free []int, err error) {
	held = newFlowSet(e.cfg.Partitions)
	if v.needsFlow == nil {
		return held, items, nil
	}
	arrays := executionsOf(ids, items)
	rows, err := e.q.ReadExecutionForecasts(ctx, tx, db.ReadExecutionForecastsParams{
		PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions, Ords: ordsOf(items), DefaultCap: policy.ReclaimLimit,
	})
	if err != nil {
		return nil, nil, err
	}
	needed := make(map[int]*id.FlowID, len(rows))
	for _, row := range rows {
		n := items[row.Ord]
		if !v.needs(n, forecast{row.FlowID, row.LifecyclePhase, row.LostTooOften}) {
			continue
		}
		if needed[n] = row.FlowID; !held.admit(row.FlowID) {
			return nil, nil, errManyFlows
		}
	}
	if err := e.holdFlows(ctx, tx, held, true); err != nil {
		return nil, nil, err
	}
	for _, n := range items {
		if flow := needed[n]; flow != nil && !held.has(*flow) {
			answers[n] = v.refuse(errBusyFlow)
			continue
		}
		free = append(free, n)
	}
	return held, free, nil
}

// lockExecutions locks some executions, then their current attempts, and then reads the values that decide about them,
// by position in items. An impatient engine marks locked ones as busy.
func (e *Engine) lockExecutions(ctx context.Context, tx *txn, ids []id.ExecutionID, items []int) ([]*heldExecution, error) {
	held := make([]*heldExecution, len(items))
	for ord, n := range items {
		held[ord] = &heldExecution{id: ids[n]}
	}
	if len(items) == 0 {
		return held, nil
	}
	arrays := executionsOf(ids, items)
	locked := make([]bool, len(items))
	busy := make(map[id.ExecutionUUID]bool)
	lock := []step{
		func(conn db.DBTX) error {
			_, err := e.q.LockExecutions(ctx, conn, db.LockExecutionsParams{
				PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
			})
			return err
		},
		func(conn db.DBTX) error {
			return e.q.LockCurrentAttempts(ctx, conn, db.LockCurrentAttemptsParams{
				PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
			})
		},
	}
	if e.runner.IsImpatient() {
		lock = []step{
			func(conn db.DBTX) error {
				rows, err := e.q.TakeExecutions(ctx, conn, db.TakeExecutionsParams{
					PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
				})
				for _, row := range rows {
					locked[row.Ord] = true
				}
				return err
			},
			func(conn db.DBTX) error {
				rows, err := e.q.TakeCurrentAttempts(ctx, conn, db.TakeCurrentAttemptsParams{
					PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions,
				})
				for _, row := range rows {
					busy[row.ExecutionID] = row.Busy
				}
				return err
			},
		}
	}
	var rows []db.ReadHeldExecutionsRow
	err := pgtx.InOneTrip(ctx, tx, append(lock, func(conn db.DBTX) (err error) {
		rows, err = e.q.ReadHeldExecutions(ctx, conn, db.ReadHeldExecutionsParams{
			PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions, Ords: ordsOf(items),
			DefaultCap: policy.ReclaimLimit, NowMs: e.nowMs(),
		})
		return err
	})...)
	for i := range rows {
		x := held[rows[i].Ord]
		x.ReadHeldExecutionsRow = &rows[i]
		x.busy = e.runner.IsImpatient() && (!locked[rows[i].Ord] || busy[x.id.UUID()])
	}
	return held, err
}

// interveneAlone is [intervene] for one execution.
func interveneAlone[R any](ctx context.Context, e *Engine, x id.ExecutionID, v intervention[R]) (answer R, err error) {
	answers, err := intervene(ctx, e, []id.ExecutionID{x}, nil, v)
	if err != nil {
		return answer, err
	}
	return answers[0], nil
}
