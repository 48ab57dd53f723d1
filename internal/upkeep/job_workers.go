package upkeep

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// WorkerEventRetention is how long the events of registered workers are kept, in ff_worker_registry_event.
const WorkerEventRetention = 7 * 24 * time.Hour

// SweepWorkers deletes registered workers whose TTL has passed, and writes an event for each. It handles at most batch
// workers and returns how many. A worker that still runs registers again with its next heartbeat. Nothing else depends
// on the sweep: [engine.Engine.Workers] knows which workers are live.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked rows. Safe to repeat and to run in any number of
// processes.
func (u *Upkeep) SweepWorkers(ctx context.Context, batch int) (int, error) {
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, u.shortWait().c, "sweep workers", func(conn db.DBTX, _ *core.Notifications) (int, error) {
		n, err := u.c.Q.SweepWorkers(ctx, conn, db.SweepWorkersParams{NowMs: u.c.NowMs(), BatchSize: int32(batch)})
		return int(n), err
	})
}

// PruneWorkerEvents deletes at most batch events of registered workers that are older than [WorkerEventRetention], and
// returns how many.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked events. Safe to repeat and to run in any number of
// processes.
func (u *Upkeep) PruneWorkerEvents(ctx context.Context, batch int) (int, error) {
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, u.shortWait().c, "prune worker events", func(conn db.DBTX, _ *core.Notifications) (int, error) {
		n, err := u.c.Q.PruneWorkerEvents(ctx, conn, db.PruneWorkerEventsParams{
			NowMs: u.c.NowMs(), KeepMs: WorkerEventRetention.Milliseconds(), BatchSize: int32(batch),
		})
		return int(n), err
	})
}
