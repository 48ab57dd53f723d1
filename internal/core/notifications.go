package core

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

// Channels notified after a commit. A notification is a hint: after a missed one, a process finds the rows at its next
// poll.
const (
	ReadyChannel      = "ffx_ready"   // payload: the lane with work
	ResumedChannel    = "ffx_resumed" // payload: the lane on which an interrupted attempt may continue
	leaseChannel      = "ff_lease_event"
	CompletionChannel = "ff_completion"
	LostChannel       = "ffx_lost" // payload: the worker instance with a lost lease
	operatorChannel   = "ff_operator_event"
	signalChannel     = "ff_signal_event"
	ScheduleChannel   = "ffx_schedule" // payload: "changed"; a schedule may be due sooner
	GateChannel       = "ffx_gate"     // payload: "changed"; a budget or limit may admit waiting executions
)

// Notifying sends and receives an engine's notifications.
type Notifying struct {
	Notifier     *notify.Notifier
	Listener     *notify.Listener
	Undispatched chan struct{} // buffered for one; signals completions to dispatch
	Delayed      chan struct{} // buffered for one; signals delayed executions
	Unneeded     chan struct{} // buffered for one; signals siblings to cancel
	CallEnded    chan struct{} // buffered for one; signals ends of called executions
	MemberEnded  chan struct{} // buffered for one; signals ends of members of sequences
	Rescheduled  chan struct{} // buffered for one; signals added and changed schedules
	Gated        chan struct{} // buffered for one; signals possible admissions by a budget or limit
	OverBudget   chan struct{} // buffered for one; signals executions to cancel after a breach in an InTx
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
		MemberEnded:  make(chan struct{}, 1),
		Rescheduled:  make(chan struct{}, 1),
		Gated:        make(chan struct{}, 1),
		OverBudget:   make(chan struct{}, 1),
		Resumed:      &Resumptions{},
	}
}

// Resumptions counts notifications of the resumed channel, for lanes with claimers. A changed count means work hidden
// by the claimers' scan positions.
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

// Notifications are the notifications to send after the commit of one transaction.
type Notifications struct {
	notify.Set
	left     bool     // a completion event to dispatch
	Delayed  bool     // an execution to promote later
	unneeded bool     // a group whose remaining upstreams should be cancelled
	Keys     bool     // the keystore has changed
	schedule bool     // a schedule may be due soon
	gate     bool     // a budget or limit may admit executions
	sequence bool     // an end of a member of a sequence
	Over     bool     // executions to cancel, because a budget is over, in an InTx
	observed observed // nil without an observer
}

// Lane notifies of work on a lane.
func (n *Notifications) Lane(lane string) { n.Add(ReadyChannel, lane) }

// Resumed notifies of work on a lane hidden by scan positions.
func (n *Notifications) Resumed(lane string) { n.Add(ResumedChannel, lane) }

// SequenceEnded notifies of the end of a sequence's member on a lane. The next one is probably on the same lane, hidden
// by scan positions.
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

// Rescheduled notifies of a schedule possibly due sooner than before.
func (n *Notifications) Rescheduled() {
	n.schedule = true
	n.Add(ScheduleChannel, "changed")
}

// Gated notifies of executions waiting for a budget or limit, and of free places.
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

// Stream notifies the readers of a stream of new frames, or of the end.
func (n *Notifications) Stream(k StreamKey) { n.AddSoon(k.Channel(), "") }

// Completions notifies of completion events.
func (n *Notifications) Completions() { n.Add(CompletionChannel, "") }

// Lost notifies a worker instance of a lease ended or taken by another call.
func (n *Notifications) Lost(instance string) {
	if instance != "" && len(instance) <= maxLostPayload {
		n.Add(LostChannel, instance)
	}
}

// maxLostPayload is the longest instance name sent. Another program may have stored a name too long for a notification.
const maxLostPayload = 1024

// undispatched signals only this engine. Other processes find the event by polling.
func (n *Notifications) undispatched() { n.left = true }

// Include merges the notifications of a nested transaction.
func (n *Notifications) Include(other *Notifications) {
	n.Merge(&other.Set)
	n.left, n.Delayed, n.unneeded = n.left || other.left, n.Delayed || other.Delayed, n.unneeded || other.unneeded
	n.Keys, n.schedule, n.gate = n.Keys || other.Keys, n.schedule || other.schedule, n.gate || other.gate
	n.Over, n.sequence = n.Over || other.Over, n.sequence || other.sequence
	n.observeAll(other.observed)
}

// Notify sends notifications of a committed transaction, and reports its events to the observer.
func (c *Core) Notify(ctx context.Context, due *Notifications) {
	if pgtx.Refusal(c.Tx) != nil {
		return
	}
	c.report(ctx, due)
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
		c.memberEnded()
	}
	c.Notifier.Notify(&due.Set)
}

// Forward sends the notifications of a committed transaction, or leaves them to the enclosing transaction. A caller's
// transaction does not report its commit, so its events are reported at once.
func (c *Core) Forward(ctx context.Context, due *Notifications) {
	if c.Tx == nil {
		c.Notify(ctx, due)
		return
	}
	if around, ok := c.Tx.(noter); ok {
		around.note(due)
		return
	}
	c.report(ctx, due)
}

// noter is a transaction collecting the notifications to send after its commit.
type noter interface{ note(due *Notifications) }

// Remind sends a value to a channel unless its buffer is full.
func Remind(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// SequenceEnded notes ends of executions of sequences. The next executions may be on any lane, hidden by the scan
// positions of claimers. Other processes are notified of the given lanes only, since most sequences keep to one lane;
// polling finds executions on other lanes.
func (c *Core) SequenceEnded(lanes []string) {
	var due Notifications
	for _, lane := range lanes {
		due.SequenceEnded(lane)
	}
	c.Notify(context.Background(), &due)
}

// memberEnded makes claimers of this process look for the next members of sequences on all lanes.
func (c *Core) memberEnded() {
	c.Resumed.byLane.Range(func(_, count any) bool {
		count.(*atomic.Int64).Add(1)
		return true
	})
	Remind(c.MemberEnded)
}

// OnNotification calls a function for the notifications of a channel until stop is called, and if connects is true
// after each new connection too. nil is never called.
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

// newListener returns the listener shared by all waiting calls of an engine on pool.
func newListener(pool *pgxpool.Pool, cfg Config) *notify.Listener {
	switch {
	case cfg.NoListener:
		return notify.NewListener(nil, cfg.Log)
	case cfg.Listener != nil:
		return notify.NewListener(func() *pgxpool.Config { return cfg.Listener }, cfg.Log)
	}
	return notify.NewListener(pool.Config, cfg.Log)
}
