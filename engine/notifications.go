package engine

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/notify"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Channels that are notified after a commit. A notification is a hint: whoever misses one finds the
// rows at its next poll.
const (
	readyChannel      = "ffx_ready" // payload: the lane that has work
	leaseChannel      = "ff_lease_event"
	completionChannel = "ff_completion"
	lostChannel       = "ffx_lost" // payload: the worker instance that lost a lease
	operatorChannel   = "ff_operator_event"
	foreignChannel    = "ffx_foreign" // another program has created executions
)

// notifications are what one transaction owes others once it has been committed.
type notifications struct {
	notify.Set
	left     bool // a completion event that is to be dispatched
	delayed  bool // an execution that is to be promoted
	unneeded bool // a group whose remaining upstreams are to be cancelled
}

func (n *notifications) lane(lane string) { n.Add(readyChannel, lane) }

func (n *notifications) leases() { n.Add(leaseChannel, "") }

func (n *notifications) operatorEvents() { n.Add(operatorChannel, "") }

func (n *notifications) completions() { n.Add(completionChannel, "") }

// lost tells a worker instance that somebody else has ended or taken a lease of it.
func (n *notifications) lost(instance string) {
	if instance != "" && len(instance) <= maxLostPayload {
		n.Add(lostChannel, instance)
	}
}

// maxLostPayload is the longest name of an instance that is notified. Another program may have stored a longer one than
// a notification takes.
const maxLostPayload = 1024

// undispatched tells this engine alone: others find the event when they look.
func (n *notifications) undispatched() { n.left = true }

// add adds what another transaction owes, which is a part of this one.
func (n *notifications) add(other *notifications) {
	n.Merge(&other.Set)
	n.left, n.delayed, n.unneeded = n.left || other.left, n.delayed || other.delayed, n.unneeded || other.unneeded
}

// notify tells of what has been committed.
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
	e.notifier.Notify(&due.Set)
}

// remind puts a value into a channel that has room for one.
func remind(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Wake tells waiting workers that lanes have work: those of this engine at once, all others by at most one
// notification in ten milliseconds. It does not wait and never fails: a worker that is not woken finds the
// work at its next poll. Needed only after work was created inside a caller's transaction that is not [Engine.InTx]'s.
func (e *Engine) Wake(lanes ...id.LaneID) {
	var due notifications
	for _, lane := range lanes {
		due.lane(string(lane))
	}
	e.notify(&due)
}

// Flush returns when what the engine has to tell other processes has been sent, or could not be. A program that does its
// work and ends calls it before it closes the pool; without it a worker may find what it is to be told of at its next
// poll or renewal.
func (e *Engine) Flush() { e.notifier.Flush() }

// Listen calls wake with the name of each lane that any process notifies of work, until ctx ends, and with "" after
// every (re)connection: work may have come meanwhile on any lane. Of work that this engine makes it hears right after
// the commit, in the goroutine that made it, and once more from the server. wake must not block, and is called from
// several goroutines at once.
//
// All listeners of an engine share one connection, beside the pool, made as the pool makes its own: with its BeforeConnect
// and AfterConnect. One of the callers waits on it for all, and another one goes on when its ctx ends; the last one
// closes it. [Config.Listener] gives it another address, and [Config.NoListener] does without: nothing is heard of other
// processes then, as behind a transaction pooler. A notification is a hint, and whoever waits for work also polls.
//
// It returns ctx's error; a lost connection is no error: it reconnects.
func (e *Engine) Listen(ctx context.Context, wake func(id.LaneID)) error {
	if err := pgtx.Refusal(e.tx); err != nil {
		return wrap("listen", err)
	}
	return e.listener.Listen(ctx, readyChannel, func(lane string) { wake(id.LaneID(lane)) })
}

// ListenLost calls lost when any process has ended or taken away leases of a worker instance, until ctx ends, and after
// every (re)connection: some may have been lost meanwhile. Which ones, a renewal tells. lost must not block, and is called
// from several goroutines at once.
//
// It shares the connection of [Engine.Listen], and is told in the same way. A notification is a hint: whoever misses one
// learns with the next renewal. Leases that ended because they ran out, or that their holder gave up, are not told of.
//
// It returns ctx's error; a lost connection is no error: it reconnects.
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

// newListener returns what hears for all who wait by an engine on pool.
func newListener(pool *pgxpool.Pool, cfg Config) *notify.Listener {
	switch {
	case cfg.NoListener:
		return notify.NewListener(nil, cfg.Log)
	case cfg.Listener != nil:
		return notify.NewListener(func() *pgxpool.Config { return cfg.Listener }, cfg.Log)
	}
	return notify.NewListener(pool.Config, cfg.Log)
}
