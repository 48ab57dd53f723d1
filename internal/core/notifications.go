package core

import (
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
	ReadyChannel      = "ffx_ready"   // payload: the lane that has work
	ResumedChannel    = "ffx_resumed" // payload: the lane on which an interrupted attempt may continue
	leaseChannel      = "ff_lease_event"
	CompletionChannel = "ff_completion"
	LostChannel       = "ffx_lost" // payload: the worker instance that lost a lease
	operatorChannel   = "ff_operator_event"
	signalChannel     = "ff_signal_event"
	ScheduleChannel   = "ffx_schedule" // payload: "changed"; a schedule may be due sooner
	GateChannel       = "ffx_gate"     // payload: "changed"; a budget or limit may have room for waiting executions
)

// Notifying is the part of an engine that sends and receives notifications.
type Notifying struct {
	Notifier     *notify.Notifier
	Listener     *notify.Listener
	Undispatched chan struct{} // buffered for one; signals completions to dispatch
	Delayed      chan struct{} // buffered for one; signals that an execution was delayed
	Unneeded     chan struct{} // buffered for one; signals siblings to cancel
	CallEnded    chan struct{} // buffered for one; signals ends of called executions
	SeatLeft     chan struct{} // buffered for one; signals ends of members of sequences
	Rescheduled  chan struct{} // buffered for one; signals that a schedule was added or changed
	Gated        chan struct{} // buffered for one; signals that a budget or limit may admit executions
	OverBudget   chan struct{} // buffered for one; signals executions that a breach in an InTx cancels
	Resumed      *Resumptions
}

func newNotifying(pool *pgxpool.Pool, cfg Config) *Notifying {
	listener := newListener(pool, cfg)
	return &Notifying{
		Notifier:     notify.NewNotifier(pool, listener, cfg.Log),
		Listener:     listener,
		Undispatched: make(chan struct{}, 1),
		Delayed:      make(chan struct{}, 1),
		Unneeded:     make(chan struct{}, 1),
		CallEnded:    make(chan struct{}, 1),
		SeatLeft:     make(chan struct{}, 1),
		Rescheduled:  make(chan struct{}, 1),
		Gated:        make(chan struct{}, 1),
		OverBudget:   make(chan struct{}, 1),
		Resumed:      &Resumptions{},
	}
}

// Resumptions counts notifications of the resumed channel, for the lanes that have claimers. A claimer whose count has
// changed knows that its scan positions hide work.
type Resumptions struct{ byLane sync.Map }

// Of returns the count of a lane, and counts from then on.
func (r *Resumptions) Of(lane string) *atomic.Int64 {
	count, _ := r.byLane.LoadOrStore(lane, new(atomic.Int64))
	return count.(*atomic.Int64)
}

// Count counts a notification, if the lane has claimers.
func (r *Resumptions) Count(lane string) {
	if count, claimed := r.byLane.Load(lane); claimed {
		count.(*atomic.Int64).Add(1)
	}
}

// Notifications are the notifications that one transaction sends after its commit.
type Notifications struct {
	notify.Set
	left     bool // a completion event to dispatch
	Delayed  bool // an execution to promote later
	unneeded bool // a group whose remaining upstreams should be cancelled
	Keys     bool // the keystore has changed
	schedule bool // a schedule that may be due soon
	gate     bool // a budget or limit that may admit executions
	sequence bool // an end of a member of a sequence
	Over     bool // executions to cancel, because a budget is over, in an InTx
}

// Lane notifies that a lane has work.
func (n *Notifications) Lane(lane string) { n.Add(ReadyChannel, lane) }

// Resumed notifies like lane, and also that the work is hidden by scan positions.
func (n *Notifications) Resumed(lane string) { n.Add(ResumedChannel, lane) }

// SequenceEnded notifies that a member of a sequence has ended on a lane. The next one is probably on the same lane, hidden by
// scan positions.
func (n *Notifications) SequenceEnded(lane string) {
	n.sequence = true
	n.Resumed(lane)
}

// Leases notifies of lease events.
func (n *Notifications) Leases() { n.Add(leaseChannel, "") }

// OperatorEvents notifies of operator events.
func (n *Notifications) OperatorEvents() { n.Add(operatorChannel, "") }

// SignalEvents notifies of signal events.
func (n *Notifications) SignalEvents() { n.Add(signalChannel, "") }

// Rescheduled notifies that a schedule may be due sooner than it was.
func (n *Notifications) Rescheduled() {
	n.schedule = true
	n.Add(ScheduleChannel, "changed")
}

// Gated notifies that executions wait for a budget or limit, or that one may have room.
func (n *Notifications) Gated() {
	n.gate = true
	n.Add(GateChannel, "changed")
}

// StreamKey is an attempt's output stream.
type StreamKey struct {
	Execution id.ExecutionID
	Attempt   int
}

// StreamOf returns the stream of the attempt of a lease.
func StreamOf(l id.Fence) StreamKey { return StreamKey{Execution: l.Execution, Attempt: l.Attempt} }

// Channel returns the channel of notifications for readers.
func (k StreamKey) Channel() string { return wire.StreamChannel(k.Execution.UUID(), int32(k.Attempt)) }

// Stream notifies readers of a stream that it has frames, or has ended.
func (n *Notifications) Stream(k StreamKey) { n.AddSoon(k.Channel(), "") }

// Completions notifies of completion events.
func (n *Notifications) Completions() { n.Add(CompletionChannel, "") }

// Lost notifies a worker instance that another call has ended or taken a lease of it.
func (n *Notifications) Lost(instance string) {
	if instance != "" && len(instance) <= maxLostPayload {
		n.Add(LostChannel, instance)
	}
}

// maxLostPayload is the longest instance name that is sent. Another program may have stored one that is too long for a
// notification.
const maxLostPayload = 1024

// undispatched wakes only this engine. Other processes find the event by polling.
func (n *Notifications) undispatched() { n.left = true }

// Include merges the notifications of a nested transaction.
func (n *Notifications) Include(other *Notifications) {
	n.Merge(&other.Set)
	n.left, n.Delayed, n.unneeded = n.left || other.left, n.Delayed || other.Delayed, n.unneeded || other.unneeded
	n.Keys, n.schedule, n.gate = n.Keys || other.Keys, n.schedule || other.schedule, n.gate || other.gate
	n.Over, n.sequence = n.Over || other.Over, n.sequence || other.sequence
}

// Notify sends notifications of a committed transaction.
func (c *Core) Notify(due *Notifications) {
	if pgtx.Refusal(c.Tx) != nil {
		return
	}
	if due.left {
		Remind(c.Undispatched)
	}
	if due.Delayed {
		Remind(c.Delayed)
	}
	if due.unneeded {
		Remind(c.Unneeded)
	}
	if due.Keys {
		c.Keys.forget()
	}
	if due.schedule {
		Remind(c.Rescheduled)
	}
	if due.gate {
		Remind(c.Gated)
	}
	if due.Over {
		Remind(c.OverBudget)
	}
	if due.sequence {
		c.seatFreed()
	}
	c.Notifier.Notify(&due.Set)
}

// PassOn sends the notifications of a committed transaction, or leaves them to the enclosing transaction.
func (c *Core) PassOn(due *Notifications) {
	if c.Tx == nil {
		c.Notify(due)
		return
	}
	if around, ok := c.Tx.(noter); ok {
		around.note(due)
	}
}

// noter is a transaction that collects the notifications to send after its commit.
type noter interface{ note(due *Notifications) }

// Remind sends a value to a channel unless its buffer is full.
func Remind(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// SequenceEnded notes ends of executions of sequences. The next ones may be on any lane, hidden by the scan positions of
// claimers. Other processes hear of the given lanes, since most sequences keep to one; on others they find them by polling.
func (c *Core) SequenceEnded(lanes []string) {
	var due Notifications
	for _, lane := range lanes {
		due.SequenceEnded(lane)
	}
	c.Notify(&due)
}

// seatFreed makes claimers of this process look for the next members of sequences on all lanes.
func (c *Core) seatFreed() {
	c.Resumed.byLane.Range(func(_, count any) bool {
		count.(*atomic.Int64).Add(1)
		return true
	})
	Remind(c.SeatLeft)
}

// OnNotification calls wake for the notifications of a channel until stop is called, and if connects is true after each new
// connection too. Without wake there is nothing to call.
func (c *Core) OnNotification(channel string, connects bool, wake func()) (stop func()) {
	if wake == nil {
		return func() {}
	}
	return c.Listener.Join(channel, func(payload string) {
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
