package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Wake notifies waiting workers that lanes have work: those of this engine at once, all others by at most one
// notification in ten milliseconds. It does not wait and never fails; a worker that misses it finds the work at its
// next poll. Call it after committing a transaction of your own that created work; [Engine.InTx] calls it for you.
func (e *Engine) Wake(lanes ...id.LaneID) {
	var due core.Notifications
	for _, lane := range lanes {
		due.Lane(string(lane))
	}
	e.c.Notify(&due)
}

// Flush waits until the engine's pending notifications to other processes have been sent or have failed. Call it in a
// short-lived program before closing the pool. Otherwise workers may notice its changes only at their next poll or
// renewal. It also waits until executions that a breach of a budget cancels have been cancelled, or left to a job.
func (e *Engine) Flush() {
	e.c.Breaches.Wait()
	e.c.Notifier.Flush()
}

// Listen calls wake with the name of each lane that any process notifies of work, and with "" after every
// (re)connection, because work may have come on any lane in the meantime. Work from this engine wakes it directly after
// the commit, and once more from the server. wake must not block, and is called from several goroutines concurrently. A
// notification is a hint, so also poll.
//
// All listeners of an engine share one connection beside the pool, made like the pool's with BeforeConnect and
// AfterConnect; the last one closes it. [Config.Listener] sets another address. With [Config.NoListener] there is no
// connection, and notifications of other processes are not received.
//
// Errors: ctx's error. Listen reconnects after a lost connection instead of returning.
func (e *Engine) Listen(ctx context.Context, wake func(id.LaneID)) error {
	if err := pgtx.Refusal(e.c.Tx); err != nil {
		return core.Wrap("listen", err)
	}
	defer e.c.Listener.Join(core.ResumedChannel, func(lane string) {
		if lane != "" { // a new connection wakes by the other channel
			e.c.Resumed.Count(lane)
			wake(id.LaneID(lane))
		}
	})()
	return e.c.Listener.Listen(ctx, core.ReadyChannel, func(lane string) { wake(id.LaneID(lane)) })
}

// ListenLost calls lost after any process has ended or taken away leases of a worker instance, and after every
// (re)connection. A renewal then reports which leases were lost. Leases that expired or were released by their holder
// are not notified. lost must not block, and is called from several goroutines concurrently. A notification is a hint;
// without it the next renewal reports the loss.
//
// It shares the connection of [Engine.Listen]. Errors: ctx's error. ListenLost reconnects after a lost connection
// instead of returning.
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
