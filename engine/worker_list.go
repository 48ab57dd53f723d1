package engine

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// RegisteredWorker is a worker process in the registry.
type RegisteredWorker struct {
	WorkerName
	Worker       id.WorkerID // the pool
	Lanes        []id.LaneID // in byte order
	Capabilities id.Capabilities
	Kinds        []string // with handlers, in byte order; empty if not reported

	Running     int  // executions at the last heartbeat
	Concurrency int  // most executions at once; 0 if not reported
	Stopping    bool // shutting down

	FullKinds []string // whose handlers were all taken, in byte order
	Stuck     int      // handlers that continued although their context had ended

	RegisteredAt time.Time
	HeartbeatAt  time.Time     // the last heartbeat
	TTL          time.Duration // how long the worker is live after a heartbeat
	Live         bool          // at the call, by the database's clock
	DrainedSince time.Time     // by [operator.DrainWorker]; zero unless drained
}

// WorkerFilter selects registered workers that match all fields. The zero value selects all live workers.
type WorkerFilter struct {
	Namespace id.Namespace
	Worker    id.WorkerID // the pool
	Instance  id.WorkerInstanceID
	Lane      id.LaneID // claimed by the worker
	Gone      bool      // also expired workers, until they are deleted
}

func (f *WorkerFilter) check() error {
	return core.CheckWorkers(f.Namespace, f.Worker, f.Instance, f.Lane)
}

// ListWorkers returns a [Page] of the registered workers that match a filter, in byte order of namespace and instance.
// Takes no locks.
//
// Errors: [fferr.ErrInvalidInput] for a filter no worker can match.
func (e *Engine) ListWorkers(ctx context.Context, filter WorkerFilter, after string, limit int) (Page[RegisteredWorker], error) {
	const op = "list workers"
	page, err := e.listWorkers(ctx, filter, after, limit)
	return page, core.Wrap(op, err)
}

// Workers iterates over the results of [Engine.ListWorkers], page by page.
func (e *Engine) Workers(ctx context.Context, filter WorkerFilter) iter.Seq2[RegisteredWorker, error] {
	return core.Pages(func(after string) (Page[RegisteredWorker], error) { return e.ListWorkers(ctx, filter, after, MaxPage) })
}

func (e *Engine) listWorkers(ctx context.Context, f WorkerFilter, after string, limit int) (page Page[RegisteredWorker], err error) {
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	if err := f.check(); err != nil {
		return page, err
	}
	list := fmt.Sprintf("workers %q %q %q %q %v", f.Namespace, f.Worker, f.Instance, f.Lane, f.Gone)
	last, err := core.ReadCursor(list, after)
	if err != nil {
		return page, err
	}
	namespace, instance, _ := strings.Cut(string(last), "\x00")
	rows, err := e.c.Q.ListWorkers(ctx, e.c.Reader(), db.ListWorkersParams{
		NowMs: e.c.NowMs(), AfterNamespace: namespace, AfterInstance: instance, Namespace: string(f.Namespace), WorkerID: string(f.Worker),
		WorkerInstanceID: string(f.Instance), LaneID: string(f.Lane), Gone: f.Gone, PageSize: int32(limit) + 1,
	})
	if err != nil {
		return page, err
	}
	found := core.PageOf(rows, limit, func(row *db.ListWorkersRow) string {
		return core.CursorOf(list, []byte(row.Namespace+"\x00"+row.WorkerInstanceID))
	})
	page.Next = found.Next
	for i := range found.Items {
		page.Items = append(page.Items, workerFrom(&found.Items[i]))
	}
	return page, nil
}

func workerFrom(row *db.ListWorkersRow) RegisteredWorker {
	w := RegisteredWorker{
		WorkerName: WorkerName{Namespace: id.Namespace(row.Namespace), Instance: id.WorkerInstanceID(row.WorkerInstanceID)},
		Worker:     id.WorkerID(row.WorkerID), Lanes: core.IDsOfLanes(row.Lanes), Capabilities: id.ParseCapabilities(row.CapabilitiesCSV),
		Kinds: row.Kinds, Running: int(row.Running), Concurrency: int(row.Concurrency), Stopping: row.Stopping, FullKinds: row.FullKinds, Stuck: int(row.Stuck),
		RegisteredAt: time.UnixMilli(row.RegisteredAtMs), HeartbeatAt: time.UnixMilli(row.LastHeartbeatMs),
		TTL: core.RetentionOf(row.LivenessTTLMs), Live: row.Live,
	}
	if row.DrainedAtMs > 0 {
		w.DrainedSince = time.UnixMilli(row.DrainedAtMs)
	}
	return w
}
