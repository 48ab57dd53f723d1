package upkeep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/internal/schedules"
)

// A unique key or a sequence just inserted by another transaction can't be skipped, only waited for. Each try waits for
// orderedWait at most, and no try begins later than orderedTime after the first one.
const (
	orderedWait = "10ms"
	orderedTime = 50 * time.Millisecond
)

// dueTicks are the executions to create for one schedule.
type dueTicks struct {
	at    int // the index of the schedule
	specs []engine.ExecutionSpec
}

// create creates the executions of all ticks. Unique executions and members of sequences come last, because of other
// creators of the same key or sequence.
func (r *scheduleRun) create(ctx context.Context, tx *core.Txn) error {
	var plain, ordered []dueTicks
	for i := range r.plans {
		if r.fails[i] != nil || len(r.plans[i].Create) == 0 {
			continue
		}
		ticks := dueTicks{at: i}
		for _, tick := range r.plans[i].Create {
			spec, err := r.creator().Spec(schedules.TickOf(&r.rows[i], tick))
			if err != nil {
				r.fails[i] = err
				break
			}
			ticks.specs = append(ticks.specs, spec)
		}
		if r.fails[i] != nil {
			continue
		}
		if first := &ticks.specs[0]; first.Unique != nil || !first.Sequence.IsZero() {
			ordered = append(ordered, ticks)
		} else {
			plain = append(plain, ticks)
		}
	}
	if err := r.createTicks(ctx, tx, plain); err != nil || len(ordered) == 0 {
		return err
	}
	return r.createOrdered(ctx, tx, ordered)
}

// createOrdered creates unique executions and members of sequences. If another transaction holds the key or sequence,
// the schedule is left to a later look.
//
// It tries all at once. After a busy try it continues with one schedule, and with twice as many after each success, so
// one busy schedule costs the others little.
func (r *scheduleRun) createOrdered(ctx context.Context, tx *core.Txn, ordered []dueTicks) error {
	ordered, former, err := r.takeOrders(ctx, tx, ordered)
	if err != nil {
		return err
	}
	began := time.Now()
	for n := len(ordered); len(ordered) > 0; {
		if n < len(ordered) && time.Since(began) > orderedTime {
			for _, ticks := range ordered {
				r.later(ticks.at, r.nowMs)
			}
			break
		}
		n = min(n, len(ordered))
		var due core.Notifications
		err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			inner := core.Txn{Tx: savepoint}
			err := r.createTicks(ctx, &inner, ordered[:n])
			due = inner.Due
			return err
		})
		switch {
		case err == nil:
			tx.Due.Include(&due)
			ordered, n = ordered[n:], 2*n
		case n > 1:
			n = 1
		default:
			if pgtx.SQLState(err) == core.SQLLockNotAvailable {
				r.later(ordered[0].at, r.nowMs+busyScheduleMs)
			} else {
				r.fails[ordered[0].at] = err
			}
			ordered = ordered[1:]
		}
	}
	return pgtx.SetLockTimeout(ctx, tx, former)
}

// takeOrders locks the existing keys and sequences of executions, leaves schedules whose key or sequence is locked to a
// later look, and returns the others. It shortens the transaction's lock timeout, and returns the former one.
func (r *scheduleRun) takeOrders(ctx context.Context, tx *core.Txn, ordered []dueTicks) (free []dueTicks, former string, err error) {
	var sequences db.TakeOrderedSequencesParams
	var keys db.TakeOrderedKeysParams
	for n, ticks := range ordered {
		for _, spec := range ticks.specs {
			// The creation reports a mistake.
			unique, sequence, _ := r.creator().Order(spec, r.nowMs)
			if sequence.Valid {
				sequences.PartitionKeys = append(sequences.PartitionKeys, core.SequenceID(sequence.Bytes).Partition())
				sequences.SequenceIDs = append(sequences.SequenceIDs, sequence)
				sequences.Ords = append(sequences.Ords, int32(n))
			}
			if unique.Valid {
				keys.UniqueKeys, keys.Ords = append(keys.UniqueKeys, unique), append(keys.Ords, int32(n))
			}
		}
	}
	var held, heldKeys []int32
	err = pgtx.InOneTrip(ctx, tx, func(conn db.DBTX) (err error) {
		held, err = r.c.Q.TakeOrderedSequences(ctx, conn, sequences)
		return err
	}, func(conn db.DBTX) (err error) {
		heldKeys, err = r.c.Q.TakeOrderedKeys(ctx, conn, keys)
		return err
	}, func(conn db.DBTX) (err error) {
		former, err = pgtx.ReplaceLockTimeout(ctx, conn, orderedWait)
		return err
	})
	if err != nil {
		return nil, former, err
	}
	held = append(held, heldKeys...)
	for n, ticks := range ordered {
		if slices.Contains(held, int32(n)) {
			r.later(ticks.at, r.nowMs+busyScheduleMs)
		} else {
			free = append(free, ticks)
		}
	}
	return free, former, nil
}

// later plans another look at a schedule that waits for another transaction.
func (r *scheduleRun) later(i int, whenMs int64) {
	row := &r.rows[i]
	r.plans[i] = schedules.Plan{TickMs: core.Deref(row.TickMs), QueuedMs: core.Deref(row.QueuedMs), NextMs: whenMs}
}

// createTicks creates the executions of all ticks, or none. A schedule whose execution is refused keeps its tick. A
// tick whose unique key another execution has is skipped.
func (r *scheduleRun) createTicks(ctx context.Context, tx *core.Txn, ticks []dueTicks) error {
	var specs []engine.ExecutionSpec
	var of []int
	for _, t := range ticks {
		specs, of = append(specs, t.specs...), append(of, slices.Repeat([]int{t.at}, len(t.specs))...)
	}
	if len(specs) == 0 {
		return nil
	}
	created, err := r.eng.WithTx(tx.Nested()).CreateExecutions(ctx, specs)
	if err != nil {
		return err
	}
	for _, outcome := range created {
		if outcome.Err != nil && !errors.Is(outcome.Err, fferr.ErrInvalidInput) {
			return outcome.Err
		}
	}
	for n, outcome := range created {
		i, x := of[n], outcome.Value.ID
		switch {
		case outcome.Err != nil: // as are all ticks of this schedule
			r.fails[i] = outcome.Err
		case outcome.Value.Duplicate:
			r.plans[i].Made(x, schedules.Skipped)
		default:
			r.rows[i].LastPartitionKey, r.rows[i].LastExecutionID = new(x.Partition()), core.PgUUID(x.UUID())
			r.plans[i].Made(x, schedules.Created)
			r.lanes = append(r.lanes, string(specs[n].Lane))
		}
	}
	return nil
}
