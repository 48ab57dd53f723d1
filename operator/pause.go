package operator

import (
	"context"
	"iter"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// PausedLane is a lane without claims.
type PausedLane struct {
	Lane   id.LaneID
	Since  time.Time
	Until  time.Time // zero: until [ResumeLane]
	Reason string    // "" if none was given
}

// LanePause says how to pause a lane.
type LanePause struct {
	Reason string // shown to operators; may be empty; at most 1,024 bytes

	// Until ends the pause by the clock of the database, to the millisecond. Default: [ResumeLane] ends it.
	Until time.Time
}

// DrainedWorker is a worker instance that claims no more executions.
type DrainedWorker struct {
	Instance id.WorkerInstanceID
	Since    time.Time
}

// PauseLane stops all claims from a lane until [ResumeLane] or [LanePause.Until], across restarts. Running executions
// continue, renew their leases and end; new, retried and released executions wait. The lane need not exist yet. Pausing a
// paused lane replaces the reason and the end; the last call counts.
//
// Claims of this library that start after the commit take nothing; an earlier claim may still end. At Until the next claim
// takes executions again: no background work is needed. Workers are not notified then, and claim within
// worker.Config.PollInterval. A caller's transaction above READ COMMITTED sees the lane as of its start. FlowFabric's
// workers ignore pauses.
//
// Errors: [fferr.ErrInvalidInput], also if Until has passed; [fferr.ErrContention]. Transaction: one statement; locks the
// lane's pause. Safe to repeat.
func PauseLane(ctx context.Context, eng *engine.Engine, lane id.LaneID, how LanePause) error {
	const op = "pause lane"
	c := core.Of(eng)
	if err := lane.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("lane", err))
	}
	if err := core.CheckText("Reason", how.Reason, core.MaxFreeText); err != nil {
		return core.Wrap(op, err)
	}
	return halt(ctx, c, op, state.HaltedLane, string(lane), how)
}

// ResumeLane ends the pause of a lane, and notifies the workers. If the lane is not paused, nothing changes. In a caller's
// transaction workers are not notified: call [engine.Engine.Wake] after the commit.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the lane's pause. Safe to repeat.
func ResumeLane(ctx context.Context, eng *engine.Engine, lane id.LaneID) error {
	const op = "resume lane"
	c := core.Of(eng)
	if err := lane.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("lane", err))
	}
	return goOn(ctx, c, op, state.HaltedLane, string(lane), string(lane))
}

// DrainWorker stops all claims by a worker instance until [ResumeWorker]. Running executions continue and are settled. A
// drain affects claims as [PauseLane] does, and may precede the instance's first claim. The name of an instance usually
// belongs to one process run, so a drain is deleted after 30 days; an instance still running then claims again.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the instance's drain. Safe to
// repeat.
func DrainWorker(ctx context.Context, eng *engine.Engine, instance id.WorkerInstanceID) error {
	const op = "drain worker"
	c := core.Of(eng)
	if err := instance.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("worker instance", err))
	}
	return halt(ctx, c, op, state.HaltedWorker, string(instance), LanePause{})
}

// ResumeWorker ends the drain of a worker instance, and notifies the workers. If the instance is not drained, nothing
// changes. In a caller's transaction workers are not notified: the instance claims from its next poll on.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the instance's drain. Safe to
// repeat.
func ResumeWorker(ctx context.Context, eng *engine.Engine, instance id.WorkerInstanceID) error {
	const op = "resume worker"
	c := core.Of(eng)
	if err := instance.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("worker instance", err))
	}
	return goOn(ctx, c, op, state.HaltedWorker, string(instance), "")
}

// DrainWorkers drains the live registered workers that match a filter, as [DrainWorker] does, and returns their instances, at
// most [engine.MaxPage]. Drained workers are left out, so repeat the call while it returns [engine.MaxPage]. The filter must
// name a pool or a lane. Workers registered later are not drained. Since a drain applies to an instance, workers with the
// same instance in another namespace are drained too.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the drains of the instances. Safe
// to repeat.
func DrainWorkers(ctx context.Context, eng *engine.Engine, filter engine.WorkerFilter) ([]id.WorkerInstanceID, error) {
	const op = "drain workers"
	c := core.Of(eng)
	if err := checkGroup(filter); err != nil {
		return nil, core.Wrap(op, err)
	}
	return core.InStatement(ctx, c, op, func(conn db.DBTX, due *core.Notifications) ([]id.WorkerInstanceID, error) {
		names, err := c.Q.DrainWorkers(ctx, conn, db.DrainWorkersParams{
			NowMs: c.NowMs(), Namespace: string(filter.Namespace), WorkerID: string(filter.Worker), LaneID: string(filter.Lane), BatchSize: engine.MaxPage,
		})
		for _, name := range names {
			due.Lost(name)
		}
		return instancesOf(names), err
	})
}

// ResumeWorkers resumes the drained workers in the registry that match a filter, as [ResumeWorker] does, and returns their
// instances, at most [engine.MaxPage]; repeat the call while it returns that many. The filter must name a pool or a lane.
// Resume an unregistered instance by [ResumeWorker].
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the drains of the instances. Safe
// to repeat.
func ResumeWorkers(ctx context.Context, eng *engine.Engine, filter engine.WorkerFilter) ([]id.WorkerInstanceID, error) {
	const op = "resume workers"
	c := core.Of(eng)
	if err := checkGroup(filter); err != nil {
		return nil, core.Wrap(op, err)
	}
	return core.InStatement(ctx, c, op, func(conn db.DBTX, due *core.Notifications) ([]id.WorkerInstanceID, error) {
		names, err := c.Q.ResumeWorkers(ctx, conn, db.ResumeWorkersParams{
			Namespace: string(filter.Namespace), WorkerID: string(filter.Worker), LaneID: string(filter.Lane), BatchSize: engine.MaxPage,
		})
		if len(names) > 0 {
			due.Lane("")
		}
		return instancesOf(names), err
	})
}

// checkGroup checks a filter that selects workers to change.
func checkGroup(f engine.WorkerFilter) error {
	switch {
	case f.Instance != "":
		return core.Invalid("WorkerFilter.Instance", "is set: DrainWorker and ResumeWorker act on one instance")
	case f.Gone:
		return core.Invalid("WorkerFilter.Gone", "is set")
	case f.Worker == "" && f.Lane == "":
		return core.Invalid("WorkerFilter", "names no pool and no lane")
	}
	return core.CheckWorkers(f.Namespace, f.Worker, f.Instance, f.Lane)
}

func instancesOf(names []string) []id.WorkerInstanceID {
	instances := make([]id.WorkerInstanceID, len(names))
	for i, name := range names {
		instances[i] = id.WorkerInstanceID(name)
	}
	return instances
}

func halt(ctx context.Context, c *core.Core, op string, subject state.Halt, name string, how LanePause) error {
	params := db.EnsurePauseParams{Subject: string(subject), Name: name, Reason: how.Reason, NowMs: c.NowMs()}
	if !how.Until.IsZero() {
		params.UntilMs = new(how.Until.UnixMilli())
	}
	ahead, err := core.InStatement(ctx, c, op, func(conn db.DBTX, due *core.Notifications) (bool, error) {
		if subject == state.HaltedWorker {
			due.Lost(name) // the next claim is refused anyway; the notification stops the worker at once
		}
		return c.Q.EnsurePause(ctx, conn, params)
	})
	if err == nil && !ahead {
		err = core.Wrap(op, core.Invalid("Until", "has passed"))
	}
	return err
}

// goOn ends a halt and notifies the workers of the lane, or all workers.
func goOn(ctx context.Context, c *core.Core, op string, subject state.Halt, name, lane string) error {
	_, err := core.InStatement(ctx, c, op, func(conn db.DBTX, due *core.Notifications) (int64, error) {
		n, err := c.Q.DropPause(ctx, conn, db.DropPauseParams{Subject: string(subject), Name: name})
		if n > 0 {
			due.Lane(lane)
		}
		return n, err
	})
	return err
}

// PausedLanes iterates over the paused lanes, in byte order, reading a page at a time.
//
// Errors: [fferr.ErrCorruption] for an invalid stored lane. Takes no locks.
func PausedLanes(ctx context.Context, eng *engine.Engine) iter.Seq2[PausedLane, error] {
	return pauses(ctx, eng, "list paused lanes", state.HaltedLane, func(row *db.ListPausesRow) (PausedLane, error) {
		lane := PausedLane{Lane: id.LaneID(row.Name), Since: time.UnixMilli(row.PausedAtMs), Reason: row.Reason}
		if row.UntilMs != 0 {
			lane.Until = time.UnixMilli(row.UntilMs)
		}
		return lane, lane.Lane.Validate()
	})
}

// DrainedWorkers iterates over the drained worker instances, running or not, in byte order, reading a page at a time.
//
// Errors: [fferr.ErrCorruption] for an invalid stored instance. Takes no locks.
func DrainedWorkers(ctx context.Context, eng *engine.Engine) iter.Seq2[DrainedWorker, error] {
	return pauses(ctx, eng, "list drained workers", state.HaltedWorker, func(row *db.ListPausesRow) (DrainedWorker, error) {
		worker := DrainedWorker{Instance: id.WorkerInstanceID(row.Name), Since: time.UnixMilli(row.PausedAtMs)}
		return worker, worker.Instance.Validate()
	})
}

// pauses iterates over the pauses of lanes or of worker instances.
func pauses[T any](ctx context.Context, eng *engine.Engine, op string, subject state.Halt, item func(*db.ListPausesRow) (T, error)) iter.Seq2[T, error] {
	c := core.Of(eng)
	return core.All(op, func(after *db.ListPausesRow) ([]db.ListPausesRow, error) {
		params := db.ListPausesParams{Subject: string(subject), PageSize: core.MaxPage, NowMs: c.NowMs()}
		if after != nil {
			params.AfterName = after.Name
		}
		return c.Q.ListPauses(ctx, c.Reader(), params)
	}, func(row *db.ListPausesRow) (T, bool, error) {
		pause, err := item(row)
		if err != nil {
			err = core.Corrupt("ffx_pause.name", err)
		}
		return pause, true, err
	})
}
