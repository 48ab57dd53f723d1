// Package notify reports changes in the database by Postgres notifications. A [Notifier] sends them after commits, with
// equal ones merged. A [Listener] receives them for a whole process, on one connection. Waiters in the committing
// process get them without the server.
//
// A notification is a hint: it may be lost, or arrive twice. Waiters must look for themselves, and poll now and then.
package notify

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// A Notification goes to all listeners of a channel. Equal ones are merged.
type Notification struct {
	Channel string
	Payload string
}

// Set is a set of notifications to send after a commit. The zero value is empty.
type Set struct {
	due  map[Notification]struct{}
	soon bool
}

// Add adds a notification unless the set has it.
func (s *Set) Add(channel, payload string) {
	if s.due == nil {
		s.due = make(map[Notification]struct{}, 2)
	}
	s.due[Notification{channel, payload}] = struct{}{}
}

// AddSoon is Add for a reader waiting only milliseconds. The notifier then sends all due notifications sooner, which
// costs more statements.
func (s *Set) AddSoon(channel, payload string) {
	s.Add(channel, payload)
	s.soon = true
}

// Merge adds the notifications of another set.
func (s *Set) Merge(other *Set) {
	for n := range other.due {
		s.Add(n.Channel, n.Payload)
	}
	s.soon = s.soon || other.soon
}

const (
	sendInterval = 10 * time.Millisecond
	sendTimeout  = 5 * time.Second

	// Before a set with AddSoon the pause is shorter. Sending takes at most a third of the time, unless a statement takes
	// longer than 5 ms.
	minInterval   = time.Millisecond
	intervalRatio = 2
)

// Notifier sends notifications after commits, in transactions of its own: a commit with a NOTIFY is serialised with
// every other such commit of the cluster. The notifier collects the notifications of ten milliseconds and sends them in
// one statement, one statement at a time; the first after a pause goes at once. [Set.AddSoon] shortens the pause. A
// lost notification does no harm, so the statement's commit does not wait for the disk.
type Notifier struct {
	pool     execer
	listener *Listener
	log      *slog.Logger
	failing  warn.Repeated

	silent atomic.Bool // after [Notifier.Silence]

	mu        sync.Mutex
	due       map[Notification]struct{}
	scheduled bool // until all due notifications have been sent

	hurry chan struct{} // buffered for one; signals that AddSoon added some

	sending sync.Mutex // held while a statement is sent
}

// execer is the part of a pool used by a notifier.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// NewNotifier returns a notifier sending by pool, and calling the waiters of listener directly. It logs failed sends.
func NewNotifier(pool execer, listener *Listener, log *slog.Logger) *Notifier {
	return &Notifier{pool: pool, listener: listener, log: log, due: make(map[Notification]struct{}), hurry: make(chan struct{}, 1)}
}

// Notify calls the waiters of this process for s before it returns, and sends s to other processes soon. Call Notify
// after the commit.
func (n *Notifier) Notify(s *Set) {
	if len(s.due) == 0 {
		return
	}
	if !n.silent.Load() {
		n.add(s)
	}
	for k := range s.due {
		n.listener.deliver(k.Channel, k.Payload)
	}
}

func (n *Notifier) add(s *Set) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range s.due {
		n.due[k] = struct{}{}
	}
	if !n.scheduled {
		n.scheduled = true
		go n.sendAll()
	}
	if s.soon {
		select {
		case n.hurry <- struct{}{}:
		default:
		}
	}
}

// Silence limits [Notifier.Notify] to the waiters of this process, for programs without another process.
func (n *Notifier) Silence() { n.silent.Store(true) }

// sendAll sends due notifications, pausing between statements, until none are left.
func (n *Notifier) sendAll() {
	for {
		began := time.Now()
		if !n.sendDue() {
			return
		}
		n.pause(time.Since(began))
	}
}

// pause waits between two statements. took is the time of the first.
func (n *Notifier) pause(took time.Duration) {
	least := min(max(minInterval, intervalRatio*took), sendInterval)
	time.Sleep(least)
	timer := time.NewTimer(sendInterval - least)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.hurry:
	}
}

// sendDue sends the due notifications. It returns false if there are none; then the next Notify starts sendAll again.
func (n *Notifier) sendDue() bool {
	n.sending.Lock()
	defer n.sending.Unlock()
	channels, payloads := n.take(true)
	if len(channels) == 0 {
		return false
	}
	if err := n.send(channels, payloads); err != nil {
		n.failing.Log(n.log, "notifications were not sent; listeners poll instead: check the database", "error", err)
	}
	return true
}

// Flush sends the due notifications. It returns once all due and unfinished ones have been sent or given up.
func (n *Notifier) Flush() {
	n.sending.Lock()
	defer n.sending.Unlock()
	if channels, payloads := n.take(false); len(channels) > 0 {
		if err := n.send(channels, payloads); err != nil {
			n.failing.Log(n.log, "notifications were not sent; listeners poll instead: check the database", "error", err)
		}
	}
}

// take returns the due notifications. If sender is set and there are none, the next Notify starts sendAll again.
func (n *Notifier) take(sender bool) (channels, payloads []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.hurry: // sent now
	default:
	}
	for k := range n.due {
		channels = append(channels, k.Channel)
		payloads = append(payloads, k.Payload)
	}
	clear(n.due)
	if sender {
		n.scheduled = len(channels) > 0
	}
	return channels, payloads
}

func (n *Notifier) send(channels, payloads []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	_, err := n.pool.Exec(ctx, `
		SELECT pg_notify(n.channel, n.payload), set_config('synchronous_commit', 'off', true)
		FROM unnest($1::text[], $2::text[]) AS n (channel, payload)`,
		channels, payloads)
	return err
}
