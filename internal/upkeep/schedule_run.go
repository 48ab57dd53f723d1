package upkeep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/internal/schedules"
)

// Times after which a schedule is due again if its last execution, unique key or sequence is locked, or if this process
// can't use its stored form.
const (
	busyScheduleMs   = 200
	failedScheduleMs = 60_000
)

// maxScheduleError is the longest stored error of a tick in bytes.
const maxScheduleError = 512

// RunSchedules creates the executions of at most batch schedules due by the database's clock, earliest first, and
// returns how many schedules it handled. Each tick creates one execution, in the transaction that moves the schedule to
// the next tick: after crashes and with any number of processes there is no second one.
//
// A schedule whose definition this process can't use, say because a newer version has written it, is left unchanged and
// due again after a minute; the last outcome says why.
//
// A schedule whose sequence or unique key another transaction is changing is left to a later call, and so may be
// schedules after many busy ones: a call waits only for a moment.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrBusy] if another transaction holds something else for longer than a commit
// takes, such as a new lane: nothing was written. Transaction: one, with a number of statements independent of the
// batch unless the executions are of many kinds, or others hold new unique keys; locks the schedules, skipping locked
// ones, then the executions to cancel, and last unique keys and sequences. Safe to repeat and to run in any number of
// processes.
func (u *Upkeep) RunSchedules(ctx context.Context, batch int) (int, error) {
	const op = "run schedules"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	run := scheduleRun{eng: u.eng, c: u.c, batch: batch, looked: time.Now()}
	if u.c.Tx == nil {
		run.fromMs, run.waiting = u.schedules.begin(run.looked)
	}
	n, err := core.InTx(ctx, u.c, op, func(tx *core.Txn) (int, error) { return run.inTx(ctx, tx) })
	if err == nil && u.c.Tx == nil {
		run.creator().RememberLanes(run.lanes)
		u.schedules.end(&run, n == batch)
	}
	return n, err
}

// scheduleRun is one call of the job run_schedules.
type scheduleRun struct {
	eng     *engine.Engine
	c       *core.Core
	batch   int
	looked  time.Time
	fromMs  int64          // schedules due before are not looked for
	waiting []scheduleName // schedules with ticks known to wait for the last execution

	rows   []db.FfxSchedule
	plans  []schedules.Plan
	fails  []error
	parsed schedules.Parsed

	nowMs, nextMs int64
	lanes         []string
}

func (r *scheduleRun) creator() core.Creator[engine.ExecutionSpec] {
	return core.CreatorOf[engine.ExecutionSpec](r.c)
}

func (r *scheduleRun) inTx(ctx context.Context, tx *core.Txn) (int, error) {
	steps := []core.Step{
		func(conn db.DBTX) (err error) {
			r.rows, err = r.c.Q.TakeDueSchedules(ctx, conn, db.TakeDueSchedulesParams{
				FromMs: r.fromMs, NowMs: r.c.NowMs(), BatchSize: int32(r.batch),
			})
			return err
		},
		func(conn db.DBTX) error {
			next, err := r.c.Q.GetNextSchedule(ctx, conn, db.GetNextScheduleParams{FromMs: r.fromMs, NowMs: r.c.NowMs()})
			r.nowMs, r.nextMs = next.NowMs, next.NextMs
			return err
		},
	}
	if r.fromMs == 0 {
		steps = slices.Insert(steps, 0, core.Step(func(conn db.DBTX) error {
			_, err := r.c.Q.RecallSchedules(ctx, conn, db.RecallSchedulesParams{NowMs: r.c.NowMs(), BatchSize: int32(r.batch)})
			return err
		}))
	}
	if len(r.waiting) > 0 {
		steps = slices.Insert(steps, 0, r.hasten(ctx))
	}
	err := pgtx.InOneTrip(ctx, tx, steps...)
	if err != nil || len(r.rows) == 0 {
		return 0, err
	}
	running, err := r.running(ctx, tx)
	if err != nil {
		return 0, err
	}
	r.plans, r.fails = make([]schedules.Plan, len(r.rows)), make([]error, len(r.rows))
	r.parsed = make(schedules.Parsed)
	for i := range r.rows {
		times, err := r.parsed.TimesOf(&r.rows[i])
		if r.fails[i] = err; err == nil {
			r.plans[i] = schedules.PlanTicks(&times, &r.rows[i], r.nowMs, running[i])
		}
	}
	r.cancel(ctx, tx)
	if err := r.create(ctx, tx); err != nil {
		return 0, err
	}
	r.nextMs, err = r.move(ctx, tx)
	return len(r.rows), err
}

// hasten makes the schedules due whose ticks have waited long enough.
func (r *scheduleRun) hasten(ctx context.Context) core.Step {
	params := db.HastenQueuedTicksParams{NowMs: r.c.NowMs()}
	for _, s := range r.waiting {
		params.Namespaces, params.Names = append(params.Namespaces, s.namespace), append(params.Names, s.name)
	}
	return func(conn db.DBTX) error {
		_, err := r.c.Q.HastenQueuedTicks(ctx, conn, params)
		return err
	}
}

// running returns the schedules whose last execution has not ended, except for schedules that allow overlap. The
// statement comes after the locks: before, it might not see the last execution of another process.
func (r *scheduleRun) running(ctx context.Context, tx *core.Txn) (map[int]bool, error) {
	var params db.ListRunningAmongParams
	for i := range r.rows {
		if row := &r.rows[i]; row.LastPartitionKey != nil && row.Overlap != schedules.OverlapAllow {
			params.PartitionKeys = append(params.PartitionKeys, *row.LastPartitionKey)
			params.ExecutionIDs = append(params.ExecutionIDs, row.LastExecutionID)
			params.Ords = append(params.Ords, int32(i))
		}
	}
	if len(params.Ords) == 0 {
		return nil, nil
	}
	rows, err := r.c.Q.ListRunningAmong(ctx, tx, params)
	running := make(map[int]bool, len(rows))
	for _, ord := range rows {
		running[int(ord)] = true
	}
	return running, err
}

// cancel cancels last executions to be replaced by the next tick. A schedule whose last execution is locked waits for
// another look.
func (r *scheduleRun) cancel(ctx context.Context, tx *core.Txn) {
	var specs []engine.CancelSpec
	var of []int
	for i := range r.plans {
		if r.fails[i] == nil && r.plans[i].Cancel {
			of = append(of, i)
			specs = append(specs, engine.CancelSpec{ID: r.lastExecution(i), Reason: "superseded by the next tick of its schedule"})
		}
	}
	if len(specs) == 0 {
		return
	}
	// A savepoint is set before: after an error the transaction continues without the cancellations, if it can.
	outcomes, err := r.eng.WithTx(tx.Nested()).CancelExecutions(ctx, specs)
	for n, i := range of {
		if err == nil && !errors.Is(outcomes[n], fferr.ErrBusy) {
			continue
		}
		r.later(i, r.nowMs+busyScheduleMs)
	}
}

func (r *scheduleRun) lastExecution(i int) id.ExecutionID {
	return id.ExecutionIDFromRow(*r.rows[i].LastPartitionKey, r.rows[i].LastExecutionID.Bytes)
}

// move stores the handled ticks, and returns when the next schedule is due.
func (r *scheduleRun) move(ctx context.Context, tx *core.Txn) (int64, error) {
	moves := schedules.NewMoves(len(r.rows))
	moves.AfterMs = r.nowMs
	for i := range r.rows {
		row, p := &r.rows[i], &r.plans[i]
		if err := r.fails[i]; err != nil {
			text, again := err.Error(), schedules.FailedBefore(row)
			row.LastOutcome, row.LastError = schedules.Failed, text[:min(len(text), maxScheduleError)]
			row.LastTickMs, row.LastAtMs = row.TickMs, &r.nowMs
			row.NextMs = new(r.nowMs + failedScheduleMs)
			if !again {
				row.Recent = schedules.WithRecent(row.Recent, r.nowMs, []schedules.Act{{TickMs: core.Deref(row.TickMs), Outcome: schedules.Failed}})
			}
			moves.Add(row)
			continue
		}
		row.NextMs, row.TickMs, row.QueuedMs = &p.NextMs, &p.TickMs, &p.QueuedMs
		if n := len(p.Acts); n > 0 {
			row.LastTickMs, row.LastAtMs, row.LastOutcome, row.LastError = &p.Acts[n-1].TickMs, &r.nowMs, p.Acts[n-1].Outcome, ""
			row.Recent = schedules.WithRecent(row.Recent, r.nowMs, p.Acts)
		}
		moves.Add(row)
	}
	moved, err := r.c.Q.MoveSchedules(ctx, tx, moves.MoveSchedulesParams)
	return moved.NextMs, err
}
