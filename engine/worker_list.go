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
	Worker       id.WorkerID // the pool that it belongs to
	Lanes        []id.LaneID // in byte order
	Capabilities id.Capabilities
	Kinds        []string // that it has handlers for, in byte order; empty if it doesn't report them

	Running     int  // how many executions it ran at its last heartbeat
	Concurrency int  // how many it runs at once at most; 0 if it doesn't report that
	Stopping    bool // it is shutting down

	RegisteredAt time.Time
	HeartbeatAt  time.Time     // the last one
	TTL          time.Duration // how long it is live after a heartbeat
	Live         bool          // at the time of the call, by the database's clock
	DrainedSince time.Time     // by [operator.DrainWorker]; zero: it is not drained
}

// WorkerFilter selects registered workers; the zero value selects all live ones. A worker must match all fields.
type WorkerFilter struct {
	Namespace id.Namespace        // "" means all
	Worker    id.WorkerID         // the pool; "" means all
	Instance  id.WorkerInstanceID // "" means all
	Lane      id.LaneID           // that it claims from; "" means all
	Gone      bool                // those too whose TTL has passed, until they are deleted
}

func (f *WorkerFilter) check() error {
	return core.CheckWorkers(f.Namespace, f.Worker, f.Instance, f.Lane)
}

// ListWorkers returns a page of the registered workers that match a filter, in byte order of namespace and instance.
// after is the [Page.Next] of the previous page, or "" for the first page. A limit of 0 or above [MaxPage] means
// [MaxPage].
//
// Errors: [fferr.ErrInvalidInput] for a filter that no worker can match, a negative limit or a cursor of another listing. One
// statement; takes no locks.
func (e *Engine) ListWorkers(ctx context.Context, filter WorkerFilter, after string, limit int) (Page[RegisteredWorker], error) {
	const op = "list workers"
	page, err := e.listWorkers(ctx, filter, after, limit)
	return page, core.Wrap(op, err)
}

// Workers iterates over the workers that [Engine.ListWorkers] lists, a page at a time.
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
		Kinds: row.Kinds, Running: int(row.Running), Concurrency: int(row.Concurrency), Stopping: row.Stopping,
		RegisteredAt: time.UnixMilli(row.RegisteredAtMs), HeartbeatAt: time.UnixMilli(row.LastHeartbeatMs),
		TTL: core.RetentionOf(row.LivenessTTLMs), Live: row.Live,
	}
	if row.DrainedAtMs > 0 {
		w.DrainedSince = time.UnixMilli(row.DrainedAtMs)
	}
	return w
}
