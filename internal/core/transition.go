package core

import (
	"context"
	"errors"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// A Transition changes executions by locking first and then checking each: it locks the flows that the items are
// expected to need, then the executions, then their attempts, and then reads the deciding values. X is an item with its
// values, V the answer.
//
// A settlement decides by the lease's fence ([Settlement]). A call by execution ids reads the current attempts instead
// ([ExecutionReader]).
type Transition[X locked, V any] struct {
	Reader[X]
	Op string // prefix of every error

	// outside reports whether all items are known to be outside flows. Then nothing is foreseen, unless the locked rows
	// show that one has joined a flow. Nil: nothing is known.
	outside func(positions []int) bool
	joined  bool

	// Keeps reports whether a settled item keeps its lease. Nil: none does.
	Keeps func(n int) bool

	// Needs returns the lock that an item needs on its flow. It is called with foreseen values first, and again under
	// the locks; nil means none.
	Needs func(x X) FlowLock

	// Judge decides about an item from the values read under the locks. If acts, Write changes the item. Otherwise
	// nothing is written, and answer or err is the outcome.
	Judge func(x X) (answer V, acts bool, err error)

	// Write changes items, which are in lock order and have distinct executions, and fills their outcomes. The error is
	// [ErrFlowLock] if items need more than Needs returned so far.
	Write func(ctx context.Context, tx *Txn, items []X, outcomes []fferr.Outcome[V]) error
}

// A Reader has the statements for reading and locking the items of a transition.
type Reader[X locked] struct {
	c            *Core
	item         func(n int) X                                            // item n of the input, not read yet
	foresee      func(ctx context.Context, conn db.DBTX, items []X) error // reads the values for Needs, without locks
	lockKeys     func(ctx context.Context, conn db.DBTX, items []X) error // locks keys, before the executions; nil: none
	lockAttempts func(ctx context.Context, conn db.DBTX, items []X) error
	read         func(ctx context.Context, conn db.DBTX, items []X) error // reads the deciding values
	readMore     func(ctx context.Context, conn db.DBTX, items []X) error // reads values for one operation only; may be nil
}

// locked is an item of a transition.
type locked interface {
	base() *LockedExecution
	notFound() error // the error for a missing execution or attempt
}

// LockedExecution is the common part of all items.
type LockedExecution struct {
	N    int // position in the input
	ID   id.ExecutionID
	Row  db.LockExecutionsRow // at first foreseen; zero for a missing execution
	busy bool                 // another transaction holds the execution or the attempt, so the values decide nothing
}

func (x *LockedExecution) base() *LockedExecution { return x }

// FlowLock is how a transition locks the flow of a member. The strongest lock needed by an item applies to all items.
type FlowLock int

const (
	NoFlow FlowLock = iota
	SharedFlow
	ExclusiveFlow
)

// Run runs the transition on the items of each chunk, which are in lock order, each chunk in a transaction, and fills
// their outcomes. A returned error means nothing happened. A later one is the outcome of all items from there on,
// because earlier transactions are committed.
//
// In a caller's transaction Run repeats a chunk without the refused items. Under a short wait Run refuses locked items
// with [fferr.ErrBusy], and changes the rest: locked executions, attempts and flows are skipped. After a lock that
// can't be skipped, such as a dependent's, Run halves the chunk until a locked item is alone. A chunk with too many
// flows is halved too.
func (t *Transition[X, V]) Run(ctx context.Context, chunks [][]int, outcomes []fferr.Outcome[V]) error {
	chunks, shortWait := slices.Clone(chunks), t.c.Runner.HasShortWait()
	for begun := false; len(chunks) > 0; {
		items := chunks[0]
		if len(items) == 0 {
			chunks, begun = chunks[1:], true
			continue
		}
		var accepted []int
		_, err := InTx(ctx, t.c, t.Op, func(tx *Txn) (_ struct{}, err error) {
			accepted, err = t.runIn(ctx, tx, items, outcomes)
			return struct{}{}, err
		})
		switch busy := shortWait && errors.Is(err, fferr.ErrBusy); {
		case err == nil:
			chunks[0] = nil
		case errors.Is(err, ErrFlowLock):
			t.joined = true
		case errors.Is(err, ErrRefused):
			chunks[0] = accepted
		case busy && len(items) == 1:
			outcomes[items[0]] = fferr.Outcome[V]{Err: Wrap(t.Op, fferr.ErrBusy)}
			chunks[0] = nil
		case busy || errors.Is(err, ErrManyFlows):
			half := len(items) / 2
			chunks = slices.Concat([][]int{items[:half], items[half:]}, chunks[1:])
		case !begun:
			return err
		default:
			for _, n := range slices.Concat(chunks...) {
				outcomes[n] = fferr.Outcome[V]{Err: err}
			}
			return nil
		}
	}
	return nil
}

// runIn runs the transition in a transaction and returns the accepted items. A repetition of an accepted execution is
// accepted too, and gets the outcome of the first. In a caller's transaction runIn changes all items, or none and
// returns [ErrRefused].
func (t *Transition[X, V]) runIn(ctx context.Context, tx *Txn, items []int, outcomes []fferr.Outcome[V]) (accepted []int, err error) {
	for _, n := range items {
		outcomes[n] = fferr.Outcome[V]{} // discard an earlier try that was rolled back
	}
	refuse := func(n int, err error) { outcomes[n].Err = Wrap(t.Op, err) }
	free, holds, err := t.holdFlows(ctx, tx, items, refuse)
	if err != nil {
		return nil, err
	}
	read, err := t.Lock(ctx, tx, free)
	if err != nil {
		return nil, err
	}
	var acting []X
	repeats := make(map[int]int) // to the first occurrence
	for _, x := range read {
		n, err := x.base().N, x.notFound()
		switch {
		case err != nil:
			refuse(n, err)
			continue
		case x.base().busy:
			refuse(n, ErrBusyRow)
			continue
		case !holds(x):
			return nil, ErrFlowLock
		}
		answer, acts, err := t.Judge(x)
		switch last := len(acting) - 1; {
		case err != nil:
			refuse(n, err)
			continue
		case !acts:
			outcomes[n].Value = answer
			continue
		case last >= 0 && acting[last].base().ID == x.base().ID:
			repeats[n] = acting[last].base().N
		default:
			acting = append(acting, x)
		}
		accepted = append(accepted, n)
	}
	if t.c.Tx != nil && len(accepted) < len(items) {
		return accepted, ErrRefused
	}
	if len(acting) == 0 {
		return nil, nil
	}
	if err := t.Write(ctx, tx, acting, outcomes); err != nil {
		return nil, err
	}
	for n, first := range repeats {
		outcomes[n] = outcomes[first]
	}
	return accepted, nil
}

// holdFlows locks the flows that items are expected to need, and refuses items whose flows are locked by others. It
// returns the remaining items, and a function reporting whether an item's flow is locked as needed.
func (t *Transition[X, V]) holdFlows(
	ctx context.Context, tx *Txn, positions []int, refuse func(n int, err error),
) (free []int, holds func(X) bool, err error) {
	if t.Needs == nil {
		return positions, func(X) bool { return true }, nil
	}
	items := t.items(positions)
	if t.outside == nil || t.joined || !t.outside(positions) {
		if err := t.foresee(ctx, tx, items); err != nil {
			return nil, nil, err
		}
	}
	held, strongest := NewFlowSet(t.c.Partitions), NoFlow
	need := func(x X) FlowLock {
		if x.base().Row.FlowID == nil {
			return NoFlow
		}
		return t.Needs(x)
	}
	holds = func(x X) bool {
		lock := need(x)
		return lock == NoFlow || lock <= strongest && held.Has(*x.base().Row.FlowID)
	}
	for _, x := range items {
		lock := need(x)
		if lock != NoFlow && !held.Admit(x.base().Row.FlowID) {
			return nil, nil, ErrManyFlows
		}
		strongest = max(strongest, lock)
	}
	if err := t.c.HoldFlows(ctx, tx, held, strongest == ExclusiveFlow); err != nil {
		return nil, nil, err
	}
	for _, x := range items {
		if holds(x) {
			free = append(free, x.base().N)
		} else {
			refuse(x.base().N, ErrBusyFlow)
		}
	}
	return free, holds, nil
}

// Lock locks the keys, then the executions, then their attempts, and then reads the deciding values. Reading must be
// last: a statement that waits for a lock sees all other rows as before the wait. All steps share a round trip.
func (r *Reader[X]) Lock(ctx context.Context, tx *Txn, positions []int) ([]X, error) {
	if len(positions) == 0 {
		return nil, nil
	}
	items := r.items(positions)
	steps := []Step{
		func(conn db.DBTX) error { return r.lockExecutions(ctx, conn, items) },
		func(conn db.DBTX) error { return r.lockAttempts(ctx, conn, items) },
		func(conn db.DBTX) error { return r.read(ctx, conn, items) },
	}
	if r.readMore != nil {
		steps = append(steps, func(conn db.DBTX) error { return r.readMore(ctx, conn, items) })
	}
	if r.lockKeys != nil {
		steps = slices.Insert(steps, 0, Step(func(conn db.DBTX) error { return r.lockKeys(ctx, conn, items) }))
	}
	return items, pgtx.InOneTrip(ctx, tx, steps...)
}

// items returns unread items.
func (r *Reader[X]) items(positions []int) []X {
	items := make([]X, len(positions))
	for i, n := range positions {
		items[i] = r.item(n)
	}
	return items
}

// lockExecutions locks the rows of executions, or marks locked ones as busy under a short wait.
func (r *Reader[X]) lockExecutions(ctx context.Context, conn db.DBTX, items []X) error {
	var arrays ExecutionArrays
	for _, x := range items {
		arrays.Add(x.base().ID.Partition(), x.base().ID.UUID())
	}
	if !r.c.Runner.HasShortWait() {
		rows, err := r.c.Q.LockExecutions(ctx, conn, db.LockExecutionsParams{
			PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
		})
		for _, row := range rows {
			items[row.Ord].base().Row = row
		}
		return err
	}
	rows, err := r.c.Q.TakeExecutions(ctx, conn, db.TakeExecutionsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
	})
	for _, x := range items {
		x.base().busy = true
	}
	for _, row := range rows {
		x := items[row.Ord].base()
		x.Row, x.busy = db.LockExecutionsRow(row), false
	}
	return err
}
