package engine

import (
	"context"
	"iter"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// PausedLane is a lane that workers don't claim from.
type PausedLane struct {
	Lane   id.LaneID
	Since  time.Time
	Reason string // "" if none was given
}

// DrainedWorker is a worker instance that claims no more executions.
type DrainedWorker struct {
	Instance id.WorkerInstanceID
	Since    time.Time
}

// PauseLane stops all claims from a lane until [Operator.ResumeLane], across restarts. Running executions continue,
// renew their leases and end; new, retried and released ones wait. The lane need not exist yet. Pausing a paused lane
// only changes the reason, which may be empty and has at most 1,024 bytes.
//
// No claim by this library that starts after the commit takes anything; one that was under way may still end. A
// caller's transaction above READ COMMITTED sees the lane as of its start. FlowFabric's workers ignore pauses.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the lane's pause. Safe to repeat.
func (o Operator) PauseLane(ctx context.Context, lane id.LaneID, reason string) error {
	const op = "pause lane"
	if err := lane.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("lane", err))
	}
	if err := core.CheckText("reason", reason, core.MaxFreeText); err != nil {
		return core.Wrap(op, err)
	}
	return o.halt(ctx, op, state.HaltedLane, string(lane), reason)
}

// ResumeLane lets workers claim from a lane again, and wakes them. It does nothing if the lane is not paused. In a
// caller's transaction no worker is woken: call [Engine.Wake] after the commit.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the lane's pause. Safe to repeat.
func (o Operator) ResumeLane(ctx context.Context, lane id.LaneID) error {
	const op = "resume lane"
	if err := lane.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("lane", err))
	}
	return o.goOn(ctx, op, state.HaltedLane, string(lane), string(lane))
}

// DrainWorker stops all claims by a worker instance until [Operator.ResumeWorker]. Its running executions continue and
// are settled. It affects claims like [Operator.PauseLane], even if it is called before the instance's first claim. The
// name of an instance usually belongs to one process run, so a drain is deleted after 30 days; an instance that still
// runs then claims again.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the instance's drain. Safe to
// repeat.
func (o Operator) DrainWorker(ctx context.Context, instance id.WorkerInstanceID) error {
	const op = "drain worker"
	if err := instance.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("worker instance", err))
	}
	return o.halt(ctx, op, state.HaltedWorker, string(instance), "")
}

// ResumeWorker lets a drained worker instance claim again, and wakes the workers. It does nothing if the instance is
// not drained. In a caller's transaction no worker is woken: the instance claims from its next poll on.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the instance's drain. Safe to
// repeat.
func (o Operator) ResumeWorker(ctx context.Context, instance id.WorkerInstanceID) error {
	const op = "resume worker"
	if err := instance.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("worker instance", err))
	}
	return o.goOn(ctx, op, state.HaltedWorker, string(instance), "")
}

// DrainWorkers drains the live registered workers that match a filter, as [Operator.DrainWorker], and returns their
// instances, at most [MaxPage]. Those that are drained already are left out, so call it again while it returns
// [MaxPage]. The filter must name a pool or a lane. Workers that register later are not drained. Since drains go by
// instance, workers with the same instance in another namespace are drained too.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the drains of the instances. Safe
// to repeat.
func (o Operator) DrainWorkers(ctx context.Context, filter WorkerFilter) ([]id.WorkerInstanceID, error) {
	const op = "drain workers"
	if err := filter.checkGroup(); err != nil {
		return nil, core.Wrap(op, err)
	}
	e := o.e
	return core.InStatement(ctx, e.c, op, func(conn db.DBTX, due *core.Notifications) ([]id.WorkerInstanceID, error) {
		names, err := e.c.Q.DrainWorkers(ctx, conn, db.DrainWorkersParams{
			NowMs: e.c.NowMs(), Namespace: string(filter.Namespace), WorkerID: string(filter.Worker), LaneID: string(filter.Lane), BatchSize: MaxPage,
		})
		for _, name := range names {
			due.Lost(name)
		}
		return instancesOf(names), err
	})
}

// ResumeWorkers resumes the drained workers in the registry that match a filter, as [Operator.ResumeWorker], and returns
// their instances, at most [MaxPage]; call it again while it returns that many. The filter must name a pool or a lane.
// A drained instance that isn't registered is resumed by its name alone.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the drains of the instances. Safe
// to repeat.
func (o Operator) ResumeWorkers(ctx context.Context, filter WorkerFilter) ([]id.WorkerInstanceID, error) {
	const op = "resume workers"
	if err := filter.checkGroup(); err != nil {
		return nil, core.Wrap(op, err)
	}
	e := o.e
	return core.InStatement(ctx, e.c, op, func(conn db.DBTX, due *core.Notifications) ([]id.WorkerInstanceID, error) {
		names, err := e.c.Q.ResumeWorkers(ctx, conn, db.ResumeWorkersParams{
			Namespace: string(filter.Namespace), WorkerID: string(filter.Worker), LaneID: string(filter.Lane), BatchSize: MaxPage,
		})
		if len(names) > 0 {
			due.Lane("")
		}
		return instancesOf(names), err
	})
}

// checkGroup checks a filter that selects workers to change.
func (f *WorkerFilter) checkGroup() error {
	switch {
	case f.Instance != "":
		return core.Invalid("WorkerFilter.Instance", "is set: DrainWorker and ResumeWorker act on one instance")
	case f.Gone:
		return core.Invalid("WorkerFilter.Gone", "is set")
	case f.Worker == "" && f.Lane == "":
		return core.Invalid("WorkerFilter", "names no pool and no lane")
	}
	return f.check()
}

func instancesOf(names []string) []id.WorkerInstanceID {
	instances := make([]id.WorkerInstanceID, len(names))
	for i, name := range names {
		instances[i] = id.WorkerInstanceID(name)
	}
	return instances
}

func (o Operator) halt(ctx context.Context, op string, subject state.Halt, name, reason string) error {
	e := o.e
	_, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, due *core.Notifications) (struct{}, error) {
		if subject == state.HaltedWorker {
			due.Lost(name) // its next claim takes nothing anyway; this makes it say so at once
		}
		return struct{}{}, e.c.Q.EnsurePause(ctx, conn, db.EnsurePauseParams{
			Subject: string(subject), Name: name, Reason: reason, NowMs: e.c.NowMs(),
		})
	})
	return err
}

// goOn ends a halt and wakes the workers of the lane, or all workers.
func (o Operator) goOn(ctx context.Context, op string, subject state.Halt, name, lane string) error {
	e := o.e
	_, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, due *core.Notifications) (int64, error) {
		n, err := e.c.Q.DropPause(ctx, conn, db.DropPauseParams{Subject: string(subject), Name: name})
		if n > 0 {
			due.Lane(lane)
		}
		return n, err
	})
	return err
}

// ListPausedLanes returns a page of the paused lanes, in byte order. after is the [Page.Next] of the previous page, or
// "" for the first page. A limit of 0 or above [MaxPage] means [MaxPage].
//
// Errors: [fferr.ErrInvalidInput] for a negative limit or a cursor of another listing; [fferr.ErrCorruption] for an invalid
// stored lane. One statement; takes no locks.
func (o Operator) ListPausedLanes(ctx context.Context, after string, limit int) (Page[PausedLane], error) {
	const list = "paused lanes"
	rows, limit, err := o.listPauses(ctx, list, state.HaltedLane, after, limit)
	if err != nil {
		return Page[PausedLane]{}, core.Wrap("list "+list, err)
	}
	lanes := make([]PausedLane, len(rows))
	for i, row := range rows {
		lanes[i] = PausedLane{Lane: id.LaneID(row.Name), Since: time.UnixMilli(row.PausedAtMs), Reason: row.Reason}
		if err := lanes[i].Lane.Validate(); err != nil {
			return Page[PausedLane]{}, core.Wrap("list "+list, core.Corrupt("ffx_pause.name", err))
		}
	}
	return Page[PausedLane](core.PageOf(lanes, limit, func(l *PausedLane) string { return core.CursorOf(list, []byte(l.Lane)) })), nil
}

// PausedLanes iterates over the lanes that [Operator.ListPausedLanes] lists, a page at a time.
func (o Operator) PausedLanes(ctx context.Context) iter.Seq2[PausedLane, error] {
	return core.Pages(func(after string) (Page[PausedLane], error) { return o.ListPausedLanes(ctx, after, MaxPage) })
}

// ListDrainedWorkers returns a page of the drained worker instances, in byte order, whether or not they still run.
// after is the [Page.Next] of the previous page, or "" for the first page. A limit of 0 or above [MaxPage] means
// [MaxPage].
//
// Errors: [fferr.ErrInvalidInput] for a negative limit or a cursor of another listing; [fferr.ErrCorruption] for an invalid
// stored instance. One statement; takes no locks.
func (o Operator) ListDrainedWorkers(ctx context.Context, after string, limit int) (Page[DrainedWorker], error) {
	const list = "drained workers"
	rows, limit, err := o.listPauses(ctx, list, state.HaltedWorker, after, limit)
	if err != nil {
		return Page[DrainedWorker]{}, core.Wrap("list "+list, err)
	}
	workers := make([]DrainedWorker, len(rows))
	for i, row := range rows {
		workers[i] = DrainedWorker{Instance: id.WorkerInstanceID(row.Name), Since: time.UnixMilli(row.PausedAtMs)}
		if err := workers[i].Instance.Validate(); err != nil {
			return Page[DrainedWorker]{}, core.Wrap("list "+list, core.Corrupt("ffx_pause.name", err))
		}
	}
	return Page[DrainedWorker](core.PageOf(workers, limit, func(w *DrainedWorker) string { return core.CursorOf(list, []byte(w.Instance)) })), nil
}

// DrainedWorkers iterates over the instances that [Operator.ListDrainedWorkers] lists, a page at a time.
func (o Operator) DrainedWorkers(ctx context.Context) iter.Seq2[DrainedWorker, error] {
	return core.Pages(func(after string) (Page[DrainedWorker], error) { return o.ListDrainedWorkers(ctx, after, MaxPage) })
}

func (o Operator) listPauses(
	ctx context.Context, list string, subject state.Halt, after string, limit int,
) ([]db.ListPausesRow, int, error) {
	limit, err := core.PageSize(limit)
	if err != nil {
		return nil, 0, err
	}
	last, err := core.ReadCursor(list, after)
	if err != nil {
		return nil, 0, err
	}
	rows, err := o.e.c.Q.ListPauses(ctx, o.e.c.Reader(), db.ListPausesParams{
		Subject: string(subject), AfterName: string(last), PageSize: int32(limit) + 1,
	})
	return rows, limit, err
}
