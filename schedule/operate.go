package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/schedules"
)

// MaxBackfill is the largest number of executions created by one [Backfill].
const MaxBackfill = 1000

// Pause stops the ticks of a schedule until [Resume], and drops a queued tick. Executions continue. Pausing a paused schedule
// only changes the reason, which may be empty and has at most 1,024 bytes.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the
// schedule. Safe to repeat.
func Pause(ctx context.Context, eng *engine.Engine, schedule Name, reason string) error {
	const op = "pause schedule"
	c := core.Of(eng)
	if err := schedule.check(c); err != nil {
		return core.Wrap(op, err)
	}
	if err := core.CheckText("reason", reason, core.MaxFreeText); err != nil {
		return core.Wrap(op, err)
	}
	n, err := core.InStatement(ctx, c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return c.Q.PauseSchedules(ctx, conn, db.PauseSchedulesParams{
			Namespace: string(schedule.Namespace), Names: []string{schedule.Name}, Reason: reason, NowMs: c.NowMs(),
		})
	})
	if err == nil && n == 0 {
		err = core.Wrap(op, schedule.notFound())
	}
	return err
}

// Resume continues a paused schedule with the first tick from now on. Use [Backfill] for the ticks of the pause. If the
// schedule is not paused, nothing changes.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: locks the schedule. Safe to
// repeat.
func Resume(ctx context.Context, eng *engine.Engine, schedule Name) error {
	const op = "resume schedule"
	c := core.Of(eng)
	_, err := onSchedule(ctx, c, op, schedule, func(tx *core.Txn, row *db.FfxSchedule, nowMs int64) (struct{}, error) {
		var none struct{}
		if row.PausedAtMs == nil {
			return none, nil
		}
		times, err := schedules.TimesOf(row)
		if err != nil {
			return none, err
		}
		tick := times.Next(nowMs)
		row.TickMs, row.NextMs = &tick, new(times.Due(tick))
		moves := schedules.NewMoves(1)
		moves.Resume, moves.AfterMs = true, nowMs
		moves.Add(row)
		_, err = c.Q.MoveSchedules(ctx, tx, moves.MoveSchedulesParams)
		tx.Due.Rescheduled()
		return none, err
	})
	return err
}

// Trigger creates an execution of a schedule at once, paused or not and whatever runs, as if a tick were due now. The
// execution becomes the schedule's last one. The ticks don't change. Each call creates another execution.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: locks the schedule.
func Trigger(ctx context.Context, eng *engine.Engine, schedule Name) (id.ExecutionID, error) {
	const op = "trigger schedule"
	c := core.Of(eng)
	return onSchedule(ctx, c, op, schedule, func(tx *core.Txn, row *db.FfxSchedule, nowMs int64) (x id.ExecutionID, err error) {
		spec, err := specOf(c, schedules.TickOf(row, nowMs))
		if err != nil {
			return x, err
		}
		created, err := eng.WithTx(tx.Nested()).CreateExecution(ctx, spec)
		if err != nil {
			return x, err
		}
		x = created.ID
		outcome := schedules.Skipped
		if !created.Duplicate {
			row.LastPartitionKey, row.LastExecutionID = new(x.Partition()), core.PgUUID(x.UUID())
			outcome = schedules.Triggered
		}
		row.LastTickMs, row.LastAtMs, row.LastOutcome, row.LastError = &nowMs, &nowMs, outcome, ""
		row.Recent = schedules.WithRecent(row.Recent, nowMs, []schedules.Act{{TickMs: nowMs, Outcome: outcome, Execution: x}})
		moves := schedules.NewMoves(1)
		moves.AfterMs = nowMs
		moves.Add(row)
		_, err = c.Q.MoveSchedules(ctx, tx, moves.MoveSchedulesParams)
		return x, err
	})
}

// Backfill creates an execution for each tick of a schedule between two instants, both inclusive, in the order of ticks.
// Earlier executions of the ticks don't matter: each call creates all again. Backfill ignores pauses and overlaps, and does
// not change the schedule. More than [MaxBackfill] ticks are refused.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one, with all executions or none.
func Backfill(ctx context.Context, eng *engine.Engine, schedule Name, from, to time.Time) ([]id.ExecutionID, error) {
	const op = "backfill schedule"
	c := core.Of(eng)
	if err := schedule.check(c); err != nil {
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
	return core.InTx(ctx, c, op, func(tx *core.Txn) ([]id.ExecutionID, error) {
		row, err := c.Q.GetSchedule(ctx, tx, db.GetScheduleParams{Namespace: string(schedule.Namespace), Name: schedule.Name})
		if err != nil {
			return nil, schedule.orNotFound(err)
		}
		times, err := schedules.TimesOf(&row)
		if err != nil {
			return nil, err
		}
		var specs []engine.ExecutionSpec
		for tick := times.Next(fromMs - 1); tick > 0 && tick <= toMs; tick = times.Next(tick) {
			if len(specs) == MaxBackfill {
				return nil, core.Invalid("to", fmt.Sprintf("is more than %d ticks after from", MaxBackfill))
			}
			spec, err := specOf(c, schedules.TickOf(&row, tick))
			if err != nil {
				return nil, err
			}
			specs = append(specs, spec)
		}
		created, err := eng.WithTx(tx.Nested()).CreateExecutions(ctx, specs)
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
	ctx context.Context, c *core.Core, op string, schedule Name, act func(tx *core.Txn, row *db.FfxSchedule, nowMs int64) (T, error),
) (T, error) {
	if err := schedule.check(c); err != nil {
		var none T
		return none, core.Wrap(op, err)
	}
	return core.InTx(ctx, c, op, func(tx *core.Txn) (none T, err error) {
		row, err := c.Q.LockSchedule(ctx, tx, db.LockScheduleParams{Namespace: string(schedule.Namespace), Name: schedule.Name})
		if err != nil {
			return none, schedule.orNotFound(err)
		}
		nowMs, err := c.Q.GetNow(ctx, tx, c.NowMs())
		if err != nil {
			return none, err
		}
		return act(tx, &row, nowMs)
	})
}

// specOf returns the execution of a template.
func specOf(c *core.Core, t core.Template) (engine.ExecutionSpec, error) {
	return core.CreatorOf[engine.ExecutionSpec](c).Spec(t)
}
