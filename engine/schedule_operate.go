package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxBackfill is the largest number of executions that [Operator.BackfillSchedule] creates.
const MaxBackfill = 1000

// PauseSchedule stops the ticks of a schedule until [Operator.ResumeSchedule]; a tick that waits for the last execution is
// dropped. Its executions go on. Pausing a paused schedule only changes the reason, which may be empty and has at most
// 1,024 bytes.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the schedule.
// Safe to repeat.
func (o Operator) PauseSchedule(ctx context.Context, schedule ScheduleName, reason string) error {
	const op = "pause schedule"
	e := o.e
	if err := schedule.check(e); err != nil {
		return core.Wrap(op, err)
	}
	if err := core.CheckText("reason", reason, core.MaxFreeText); err != nil {
		return core.Wrap(op, err)
	}
	n, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return e.c.Q.PauseSchedules(ctx, conn, db.PauseSchedulesParams{
			Namespace: string(schedule.Namespace), Names: []string{schedule.Name}, Reason: reason, NowMs: e.c.NowMs(),
		})
	})
	if err == nil && n == 0 {
		err = core.Wrap(op, schedule.notFound())
	}
	return err
}

// ResumeSchedule lets a paused schedule go on with the first tick from now on. The ticks of the pause are not created:
// [Operator.BackfillSchedule] does that. It does nothing if the schedule is not paused.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: locks the schedule. Safe to repeat.
func (o Operator) ResumeSchedule(ctx context.Context, schedule ScheduleName) error {
	const op = "resume schedule"
	_, err := onSchedule(ctx, o.e, op, schedule, func(tx *core.Txn, row *db.FfxSchedule, nowMs int64) (struct{}, error) {
		var none struct{}
		if row.PausedAtMs == nil {
			return none, nil
		}
		times, err := timesOfRow(row)
		if err != nil {
			return none, err
		}
		tick := times.next(nowMs)
		row.TickMs, row.NextMs = &tick, new(times.due(tick))
		moves := newScheduleMoves(1)
		moves.Resume, moves.AfterMs = true, nowMs
		moves.add(row)
		_, err = o.e.c.Q.MoveSchedules(ctx, tx, moves.MoveSchedulesParams)
		tx.Due.Rescheduled()
		return none, err
	})
	return err
}

// TriggerSchedule creates an execution of a schedule at once, paused or not and whatever runs, as if a tick were due now. It is
// then the schedule's last execution. The ticks stay. Each call creates another one.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: locks the schedule.
func (o Operator) TriggerSchedule(ctx context.Context, schedule ScheduleName) (id.ExecutionID, error) {
	const op = "trigger schedule"
	return onSchedule(ctx, o.e, op, schedule, func(tx *core.Txn, row *db.FfxSchedule, nowMs int64) (x id.ExecutionID, err error) {
		created, err := o.e.WithTx(tx.Nested()).CreateExecution(ctx, tickSpec(row, nowMs))
		if err != nil {
			return x, err
		}
		x = created.ID
		outcome := tickSkipped
		if !created.Duplicate {
			row.LastPartitionKey, row.LastExecutionID = new(x.Partition()), core.PgUUID(x.UUID())
			outcome = tickTriggered
		}
		row.LastTickMs, row.LastAtMs, row.LastOutcome, row.LastError = &nowMs, &nowMs, outcome, ""
		row.Recent = withRecent(row.Recent, nowMs, []tickAct{{nowMs, outcome, x}})
		moves := newScheduleMoves(1)
		moves.AfterMs = nowMs
		moves.add(row)
		_, err = o.e.c.Q.MoveSchedules(ctx, tx, moves.MoveSchedulesParams)
		return x, err
	})
}

// BackfillSchedule creates an execution for each tick of a schedule from an instant to another one, both inclusive, in the
// order of the ticks, whatever was created for them before: each call creates them again. It ignores pauses and overlaps, and
// does not change the schedule. More than [MaxBackfill] ticks are refused.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one, with all executions or none.
func (o Operator) BackfillSchedule(ctx context.Context, schedule ScheduleName, from, to time.Time) ([]id.ExecutionID, error) {
	const op = "backfill schedule"
	e := o.e
	if err := schedule.check(e); err != nil {
		return nil, core.Wrap(op, err)
	}
	fromMs, err := core.Instant("from", from)
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	toMs, err := core.Instant("to", to)
	switch {
	case err != nil:
		return nil, core.Wrap(op, err)
	case fromMs == 0 || toMs == 0:
		return nil, core.Wrap(op, core.Invalid("from", "and to: both are required"))
	}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) ([]id.ExecutionID, error) {
		row, err := e.c.Q.GetSchedule(ctx, tx, db.GetScheduleParams{Namespace: string(schedule.Namespace), Name: schedule.Name})
		if err != nil {
			return nil, schedule.orNotFound(err)
		}
		times, err := timesOfRow(&row)
		if err != nil {
			return nil, err
		}
		var specs []ExecutionSpec
		for tick := times.next(fromMs - 1); tick > 0 && tick <= toMs; tick = times.next(tick) {
			if len(specs) == MaxBackfill {
				return nil, core.Invalid("to", fmt.Sprintf("is more than %d ticks after from", MaxBackfill))
			}
			specs = append(specs, tickSpec(&row, tick))
		}
		created, err := e.WithTx(tx.Nested()).CreateExecutions(ctx, specs)
		if err != nil {
			return nil, err
		}
		executions := make([]id.ExecutionID, len(created))
		for i, outcome := range created {
			if outcome.Err != nil {
				return nil, outcome.Err
			}
			executions[i] = outcome.Value.ID
		}
		return executions, nil
	})
}

// onSchedule locks a schedule and runs act.
func onSchedule[T any](
	ctx context.Context, e *Engine, op string, schedule ScheduleName, act func(tx *core.Txn, row *db.FfxSchedule, nowMs int64) (T, error),
) (T, error) {
	if err := schedule.check(e); err != nil {
		var none T
		return none, core.Wrap(op, err)
	}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (none T, err error) {
		row, err := e.c.Q.LockSchedule(ctx, tx, db.LockScheduleParams{Namespace: string(schedule.Namespace), Name: schedule.Name})
		if err != nil {
			return none, schedule.orNotFound(err)
		}
		nowMs, err := e.c.Q.GetNow(ctx, tx, e.c.NowMs())
		if err != nil {
			return none, err
		}
		return act(tx, &row, nowMs)
	})
}
