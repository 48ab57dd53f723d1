package engine

import (
	"context"
	"iter"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// Halt is what keeps a worker from claiming: the word of an operator.
type Halt string

// What a claim may be halted by.
const (
	NotHalted     Halt = ""
	LanePaused    Halt = "lane"   // [Operator.PauseLane]
	WorkerDrained Halt = "worker" // [Operator.DrainWorker]
)

// PausedLane is a lane that nobody claims from.
type PausedLane struct {
	Lane   id.LaneID
	Since  time.Time
	Reason string // "": none was given
}

// DrainedWorker is a worker instance that claims nothing more.
type DrainedWorker struct {
	Instance id.WorkerInstanceID
	Since    time.Time
}

// PauseLane keeps everybody from claiming executions of a lane until [Operator.ResumeLane], over restarts too. What is
// running goes on, renews its leases and ends; what is created, retried or given back waits. A lane that nobody has
// created work on may be paused. Of a lane that is paused already only the reason changes; it may be empty, and has
// 1,024 bytes at most.
//
// No claim that begins after the commit takes anything, whichever process of this library makes it, in whichever way; one
// that was under way may still end. A caller's transaction that claims at a higher isolation level than READ COMMITTED
// sees the lane as it was when that transaction began. FlowFabric's workers do not know of pauses and claim on.
//
// Errors: [ErrInvalidInput]; [ErrContention]. Transaction: one statement; locks the lane's pause. Safe to repeat.
func (o Operator) PauseLane(ctx context.Context, lane id.LaneID, reason string) error {
	const op = "pause lane"
	if err := lane.Validate(); err != nil {
		return wrap(op, invalidBecause("lane", err))
	}
	if err := checkText("reason", reason, maxFreeText); err != nil {
		return wrap(op, err)
	}
	return o.halt(ctx, op, LanePaused, string(lane), reason)
}

// ResumeLane lets a lane be claimed from again, and wakes those who wait for its work. A lane that is not paused stays
// as it is. In a caller's transaction nobody is woken: after the commit the caller may call [Engine.Wake].
//
// Errors: [ErrInvalidInput]; [ErrContention]. Transaction: one statement; locks the lane's pause. Safe to repeat.
func (o Operator) ResumeLane(ctx context.Context, lane id.LaneID) error {
	const op = "resume lane"
	if err := lane.Validate(); err != nil {
		return wrap(op, invalidBecause("lane", err))
	}
	return o.goOn(ctx, op, LanePaused, string(lane), string(lane))
}

// DrainWorker keeps a worker instance from claiming, on whatever lane, until [Operator.ResumeWorker]. What it runs goes
// on, and is settled. It holds for claims as [Operator.PauseLane] does, and from before the instance's first claim, if it is
// given then. An instance's name is usually that of one process run: what was drained for 30 days is forgotten, and an
// instance that still runs then claims again.
//
// Errors: [ErrInvalidInput]; [ErrContention]. Transaction: one statement; locks the instance's drain. Safe to repeat.
func (o Operator) DrainWorker(ctx context.Context, instance id.WorkerInstanceID) error {
	const op = "drain worker"
	if err := instance.Validate(); err != nil {
		return wrap(op, invalidBecause("worker instance", err))
	}
	return o.halt(ctx, op, WorkerDrained, string(instance), "")
}

// ResumeWorker lets a drained worker instance claim again, and wakes the workers. One that is not drained goes on as
// before. In a caller's transaction nobody is woken: the instance claims from its next poll on.
//
// Errors: [ErrInvalidInput]; [ErrContention]. Transaction: one statement; locks the instance's drain. Safe to repeat.
func (o Operator) ResumeWorker(ctx context.Context, instance id.WorkerInstanceID) error {
	const op = "resume worker"
	if err := instance.Validate(); err != nil {
		return wrap(op, invalidBecause("worker instance", err))
	}
	return o.goOn(ctx, op, WorkerDrained, string(instance), "")
}

func (o Operator) halt(ctx context.Context, op string, subject Halt, name, reason string) error {
	e := o.e
	_, err := inStatement(ctx, e, op, func(conn db.DBTX, _ *notifications) (struct{}, error) {
		return struct{}{}, e.q.EnsurePause(ctx, conn, db.EnsurePauseParams{
			Subject: string(subject), Name: name, Reason: reason, NowMs: e.nowMs(),
		})
	})
	return err
}

// goOn ends a halt and wakes those who listen for the lane, or everybody.
func (o Operator) goOn(ctx context.Context, op string, subject Halt, name, lane string) error {
	e := o.e
	_, err := inStatement(ctx, e, op, func(conn db.DBTX, due *notifications) (int64, error) {
		n, err := e.q.DropPause(ctx, conn, db.DropPauseParams{Subject: string(subject), Name: name})
		if n > 0 {
			due.lane(lane)
		}
		return n, err
	})
	return err
}

// ListPausedLanes returns the lanes that are paused, in byte order, after a cursor: [Page.Next] of the page before, "" for
// the first page. A limit of 0, or above [MaxPage], is taken as that.
//
// Errors: [ErrInvalidInput] for a negative limit or a cursor of another listing; [ErrCorruption] for a stored lane that
// is none. One statement; locks nothing.
func (o Operator) ListPausedLanes(ctx context.Context, after string, limit int) (Page[PausedLane], error) {
	const list = "paused lanes"
	rows, limit, err := o.listPauses(ctx, list, LanePaused, after, limit)
	if err != nil {
		return Page[PausedLane]{}, wrap("list "+list, err)
	}
	lanes := make([]PausedLane, len(rows))
	for i, row := range rows {
		lanes[i] = PausedLane{Lane: id.LaneID(row.Name), Since: time.UnixMilli(row.PausedAtMs), Reason: row.Reason}
		if err := lanes[i].Lane.Validate(); err != nil {
			return Page[PausedLane]{}, wrap("list "+list, corrupt("ffx_pause.name", err))
		}
	}
	return pageOf(lanes, limit, func(l *PausedLane) string { return cursorOf(list, []byte(l.Lane)) }), nil
}

// PausedLanes goes through the paused lanes as [Operator.ListPausedLanes] lists them, a page at a time.
func (o Operator) PausedLanes(ctx context.Context) iter.Seq2[PausedLane, error] {
	return pages(func(after string) (Page[PausedLane], error) { return o.ListPausedLanes(ctx, after, MaxPage) })
}

// ListDrainedWorkers returns the worker instances that are drained, in byte order, whether they still run or not, after
// a cursor: [Page.Next] of the page before, "" for the first page. A limit of 0, or above [MaxPage], is taken as that.
//
// Errors: [ErrInvalidInput] for a negative limit or a cursor of another listing; [ErrCorruption] for a stored instance
// that is none. One statement; locks nothing.
func (o Operator) ListDrainedWorkers(ctx context.Context, after string, limit int) (Page[DrainedWorker], error) {
	const list = "drained workers"
	rows, limit, err := o.listPauses(ctx, list, WorkerDrained, after, limit)
	if err != nil {
		return Page[DrainedWorker]{}, wrap("list "+list, err)
	}
	workers := make([]DrainedWorker, len(rows))
	for i, row := range rows {
		workers[i] = DrainedWorker{Instance: id.WorkerInstanceID(row.Name), Since: time.UnixMilli(row.PausedAtMs)}
		if err := workers[i].Instance.Validate(); err != nil {
			return Page[DrainedWorker]{}, wrap("list "+list, corrupt("ffx_pause.name", err))
		}
	}
	return pageOf(workers, limit, func(w *DrainedWorker) string { return cursorOf(list, []byte(w.Instance)) }), nil
}

// DrainedWorkers goes through the drained workers as [Operator.ListDrainedWorkers] lists them, a page at a time.
func (o Operator) DrainedWorkers(ctx context.Context) iter.Seq2[DrainedWorker, error] {
	return pages(func(after string) (Page[DrainedWorker], error) { return o.ListDrainedWorkers(ctx, after, MaxPage) })
}

func (o Operator) listPauses(
	ctx context.Context, list string, subject Halt, after string, limit int,
) ([]db.ListPausesRow, int, error) {
	limit, err := pageSize(limit)
	if err != nil {
		return nil, 0, err
	}
	last, err := readCursor(list, after)
	if err != nil {
		return nil, 0, err
	}
	rows, err := o.e.q.ListPauses(ctx, o.e.reader(), db.ListPausesParams{
		Subject: string(subject), AfterName: string(last), PageSize: int32(limit) + 1,
	})
	return rows, limit, err
}
