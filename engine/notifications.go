package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/notify"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Channels that are notified after a commit. A notification is a hint: a process that misses one finds the rows at its
// next poll.
const (
	readyChannel      = "ffx_ready"   // payload: the lane that has work
	resumedChannel    = "ffx_resumed" // payload: the lane on which an interrupted attempt may continue
	leaseChannel      = "ff_lease_event"
	completionChannel = "ff_completion"
	lostChannel       = "ffx_lost" // payload: the worker instance that lost a lease
	operatorChannel   = "ff_operator_event"
	signalChannel     = "ff_signal_event"
	scheduleChannel   = "ffx_schedule" // payload: "changed"; a schedule may be due sooner
	gateChannel       = "ffx_gate"     // payload: "changed"; a budget or limit may have room for waiting executions
)

// notifying is the part of an engine that sends and receives notifications.
type notifying struct {
	notifier     *notify.Notifier
	listener     *notify.Listener
	undispatched chan struct{} // buffered for one; signals completions to dispatch
	delayed      chan struct{} // buffered for one; signals that an execution was delayed
	unneeded     chan struct{} // buffered for one; signals siblings to cancel
	callEnded    chan struct{} // buffered for one; signals ends of called executions
	seatLeft     chan struct{} // buffered for one; signals ends of members of sequences
	rescheduled  chan struct{} // buffered for one; signals that a schedule was added or changed
	gated        chan struct{} // buffered for one; signals that a budget or limit may admit executions
	overBudget   chan struct{} // buffered for one; signals executions that a breach in an [Engine.InTx] cancels
	resumed      *resumptions
}

func newNotifying(pool *pgxpool.Pool, cfg Config) notifying {
	listener := newListener(pool, cfg)
	return notifying{
		notifier:     notify.NewNotifier(pool, listener, cfg.Log),
		listener:     listener,
		undispatched: make(chan struct{}, 1),
		delayed:      make(chan struct{}, 1),
		unneeded:     make(chan struct{}, 1),
		callEnded:    make(chan struct{}, 1),
		seatLeft:     make(chan struct{}, 1),
		rescheduled:  make(chan struct{}, 1),
		gated:        make(chan struct{}, 1),
		overBudget:   make(chan struct{}, 1),
		resumed:      &resumptions{},
	}
}

// resumptions counts notifications of the resumed channel, for the lanes that have claimers. A claimer whose count has
// changed knows that its scan positions hide work.
type resumptions struct{ byLane sync.Map }

func (r *resumptions) of(lane string) *atomic.Int64 {
	count, _ := r.byLane.LoadOrStore(lane, new(atomic.Int64))
	return count.(*atomic.Int64)
}

func (r *resumptions) count(lane string) {
	if count, claimed := r.byLane.Load(lane); claimed {
		count.(*atomic.Int64).Add(1)
	}
}

// notifications are the notifications that one transaction sends after its commit.
type notifications struct {
	notify.Set
	left     bool // a completion event to dispatch
	delayed  bool // an execution to promote later
	unneeded bool // a group whose remaining upstreams should be cancelled
	keys     bool // the keystore has changed
	schedule bool // a schedule that may be due soon
	gate     bool // a budget or limit that may admit executions
	sequence bool // an end of a member of a sequence
	over     bool // executions to cancel, because a budget is over, in an [Engine.InTx]
}

func (n *notifications) lane(lane string) { n.Add(readyChannel, lane) }

// resumed notifies like lane, and also that the work is hidden by scan positions.
func (n *notifications) resumed(lane string) { n.Add(resumedChannel, lane) }

// sequenceEnded notifies that a member of a sequence has ended on a lane. The next one is probably on the same lane, hidden by
// scan positions.
func (n *notifications) sequenceEnded(lane string) {
	n.sequence = true
	n.resumed(lane)
}

func (n *notifications) leases() { n.Add(leaseChannel, "") }

func (n *notifications) operatorEvents() { n.Add(operatorChannel, "") }

func (n *notifications) signalEvents() { n.Add(signalChannel, "") }

// rescheduled notifies that a schedule may be due sooner than it was.
func (n *notifications) rescheduled() {
	n.schedule = true
	n.Add(scheduleChannel, "changed")
}

// gated notifies that executions wait for a budget or limit, or that one may have room.
func (n *notifications) gated() {
	n.gate = true
	n.Add(gateChannel, "changed")
}

// streamKey is an attempt's output stream.
type streamKey struct {
	execution id.ExecutionID
	attempt   int
}

func (k streamKey) channel() string { return wire.StreamChannel(k.execution.UUID(), int32(k.attempt)) }

// stream notifies readers of a stream that it has frames, or has ended.
func (n *notifications) stream(k streamKey) { n.AddSoon(k.channel(), "") }

func (n *notifications) completions() { n.Add(completionChannel, "") }

// lost notifies a worker instance that another call has ended or taken a lease of it.
func (n *notifications) lost(instance string) {
	if instance != "" && len(instance) <= maxLostPayload {
		n.Add(lostChannel, instance)
	}
}

// maxLostPayload is the longest instance name that is sent. Another program may have stored one that is too long for a
// notification.
const maxLostPayload = 1024

// undispatched wakes only this engine. Other processes find the event by polling.
func (n *notifications) undispatched() { n.left = true }

// add merges the notifications of a nested transaction.
func (n *notifications) add(other *notifications) {
	n.Merge(&other.Set)
	n.left, n.delayed, n.unneeded = n.left || other.left, n.delayed || other.delayed, n.unneeded || other.unneeded
	n.keys, n.schedule, n.gate = n.keys || other.keys, n.schedule || other.schedule, n.gate || other.gate
	n.over, n.sequence = n.over || other.over, n.sequence || other.sequence
}

// notify sends notifications of a committed transaction.
func (e *Engine) notify(due *notifications) {
	if pgtx.Refusal(e.tx) != nil {
		return
	}
	if due.left {
		remind(e.undispatched)
	}
	if due.delayed {
		remind(e.delayed)
	}
	if due.unneeded {
		remind(e.unneeded)
	}
	if due.keys {
		e.keys.forget()
	}
	if due.schedule {
		remind(e.rescheduled)
	}
	if due.gate {
		remind(e.gated)
	}
	if due.over {
		remind(e.overBudget)
	}
	if due.sequence {
		e.seatFreed()
	}
	e.notifier.Notify(&due.Set)
}

// passOn sends the notifications of a committed transaction, or leaves them to the enclosing transaction.
func (e *Engine) passOn(due *notifications) {
	if e.tx == nil {
		e.notify(due)
		return
	}
	if around, ok := e.tx.(noter); ok {
		around.note(due)
	}
}

// noter is a transaction that collects the notifications to send after its commit.
type noter interface{ note(due *notifications) }

// remind sends a value to a channel unless its buffer is full.
func remind(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sequenceEnded notes ends of executions of sequences. The next ones may be on any lane, hidden by the scan positions of
// claimers. Other processes hear of the given lanes, since most sequences keep to one; on others they find them by polling.
func (e *Engine) sequenceEnded(lanes []string) {
	var due notifications
	for _, lane := range lanes {
		due.sequenceEnded(lane)
	}
	e.notify(&due)
}

// seatFreed makes claimers of this process look for the next members of sequences on all lanes.
func (e *Engine) seatFreed() {
	e.resumed.byLane.Range(func(_, count any) bool {
		count.(*atomic.Int64).Add(1)
		return true
	})
	remind(e.seatLeft)
}

// Wake notifies waiting workers that lanes have work: those of this engine at once, all others by at most one
// notification in ten milliseconds. It does not wait and never fails; a worker that misses it finds the work at its
// next poll. Call it after committing a transaction of your own that created work; [Engine.InTx] calls it for you.
func (e *Engine) Wake(lanes ...id.LaneID) {
	var due notifications
	for _, lane := range lanes {
		due.lane(string(lane))
	}
	e.notify(&due)
}

// Flush waits until the engine's pending notifications to other processes have been sent or have failed. Call it in a
// short-lived program before closing the pool. Otherwise workers may notice its changes only at their next poll or
// renewal. It also waits until executions that a breach of a budget cancels have been cancelled, or left to a job.
func (e *Engine) Flush() {
	e.breaches.wait()
	e.notifier.Flush()
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
	if err := pgtx.Refusal(e.tx); err != nil {
		return wrap("listen", err)
	}
	defer e.listener.Join(resumedChannel, func(lane string) {
		if lane != "" { // a new connection wakes by the other channel
			e.resumed.count(lane)
			wake(id.LaneID(lane))
		}
	})()
	return e.listener.Listen(ctx, readyChannel, func(lane string) { wake(id.LaneID(lane)) })
}

// ListenLost calls lost after any process has ended or taken away leases of a worker instance, and after every
// (re)connection. A renewal then reports which leases were lost. Leases that expired or were released by their holder
// are not notified. lost must not block, and is called from several goroutines concurrently. A notification is a hint;
// without it the next renewal reports the loss.
//
// It shares the connection of [Engine.Listen]. Errors: ctx's error. ListenLost reconnects after a lost connection
// instead of returning.
func (e *Engine) ListenLost(ctx context.Context, instance id.WorkerInstanceID, lost func()) error {
	if err := pgtx.Refusal(e.tx); err != nil {
		return wrap("listen for lost leases", err)
	}
	return e.listener.Listen(ctx, lostChannel, func(payload string) {
		if payload == "" || payload == string(instance) {
			lost()
		}
	})
}

// onNotification calls wake for the notifications of a channel until stop is called, and if connects is true after each new
// connection too. Without wake there is nothing to call.
func (e *Engine) onNotification(channel string, connects bool, wake func()) (stop func()) {
	if wake == nil {
		return func() {}
	}
	return e.listener.Join(channel, func(payload string) {
		if connects || payload != "" {
			wake()
		}
	})
}

// newListener returns the listener that all waiting calls of an engine on pool share.
func newListener(pool *pgxpool.Pool, cfg Config) *notify.Listener {
	switch {
	case cfg.NoListener:
		return notify.NewListener(nil, cfg.Log)
	case cfg.Listener != nil:
		return notify.NewListener(func() *pgxpool.Config { return cfg.Listener }, cfg.Log)
	}
	return notify.NewListener(pool.Config, cfg.Log)
}
