package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Wake notifies waiting workers of work on lanes: this engine's workers at once, others by at most one notification in
// ten milliseconds. It does not wait, and never fails; a worker missing it finds the work at its next poll. Call it
// after committing a transaction of your own with new work; [Engine.InTx] does so itself.
func (e *Engine) Wake(lanes ...id.LaneID) {
	var due core.Notifications
	for _, lane := range lanes {
		due.Lane(string(lane))
	}
	e.c.Notify(context.Background(), &due)
}

// Flush waits until the engine's pending notifications to other processes have been sent or have failed, and until
// executions over budget have been cancelled or left to a job. A short-lived program calls it before closing the pool.
// Otherwise workers may notice its changes only at their next poll or renewal.
func (e *Engine) Flush() {
	e.c.Breaches.Wait()
	e.c.Notifier.Flush()
}

// Listen calls notify with each lane on which any process reports work, and with "" after every (re)connection, because
// work may have come on any lane in the meantime. Work from this engine is notified directly after the commit, and
// again by the server. notify must not block, and is called concurrently. Notifications are hints, so also poll.
//
// All listeners of an engine share one connection beside the pool, made like the pool's with BeforeConnect and
// AfterConnect: see [Config.Listener] and [Config.NoListener]. Listen reconnects after a lost connection.
//
// Errors: ctx's error.
func (e *Engine) Listen(ctx context.Context, notify func(id.LaneID)) error {
	if err := pgtx.Refusal(e.c.Tx); err != nil {
		return core.Wrap("listen", err)
	}
	defer e.c.Listener.Join(core.ResumedChannel, func(lane string) {
		if lane != "" { // the other channel reports a new connection
			e.c.Resumed.Count(lane)
			notify(id.LaneID(lane))
		}
	})()
	return e.c.Listener.Listen(ctx, core.ReadyChannel, func(lane string) { notify(id.LaneID(lane)) })
}

// ListenLost calls lost after any process has ended or taken away leases of a worker instance, and after every
// (re)connection. The next renewal reports which leases were lost, also without a notification. Expiry, and a release
// by the holder, are not notified. lost must not block, and is called concurrently.
//
// ListenLost shares the connection of [Engine.Listen], and reconnects alike. Errors: ctx's error.
func (e *Engine) ListenLost(ctx context.Context, instance id.WorkerInstanceID, lost func()) error {
	if err := pgtx.Refusal(e.c.Tx); err != nil {
		return core.Wrap("listen for lost leases", err)
	}
	return e.c.Listener.Listen(ctx, core.LostChannel, func(payload string) {
		if payload == "" || payload == string(instance) {
			lost()
		}
	})
}
