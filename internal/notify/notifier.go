// Package notify tells those who wait for something in the database that it may have come, by Postgres notifications: a
// [Notifier] sends them after commits, equal ones merged, and a [Listener] hears for all who wait in a process, on one
// connection. Those who wait in the process of the commit are woken without the server.
//
// A notification is a hint. It may be lost, or come twice: whoever waits looks for himself, now and then also unasked.
package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// A Notification goes to all who listen on a channel. Equal ones are merged.
type Notification struct {
	Channel string
	Payload string
}

// Set is notifications that are due after a commit. The zero value is empty.
type Set struct {
	due map[Notification]struct{}
}

// Add adds a notification unless it is there.
func (s *Set) Add(channel, payload string) {
	if s.due == nil {
		s.due = make(map[Notification]struct{}, 2)
	}
	s.due[Notification{channel, payload}] = struct{}{}
}

// Merge adds the notifications of another set.
func (s *Set) Merge(other *Set) {
	for n := range other.due {
		s.Add(n.Channel, n.Payload)
	}
}

const (
	sendInterval = 10 * time.Millisecond
	sendTimeout  = 5 * time.Second
)

// Notifier notifies after commits, off their path: a commit that carries a NOTIFY is serialised with every other such
// commit of the cluster. All notifications of ten milliseconds travel in one statement, one at a time; the first after
// a pause goes at once. Nothing is lost with a notification, so its own commit does not wait for the disk.
type Notifier struct {
	pool     execer
	listener *Listener
	log      *slog.Logger
	failing  warn.Repeated

	mu        sync.Mutex
	due       map[Notification]struct{}
	scheduled bool // until what is due has been sent

	sending sync.Mutex // held while what was taken is sent
}

// execer is a pool, as far as a notifier needs it.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// NewNotifier returns a notifier that sends by pool and wakes the waiting of listener by itself. The log is told of
// what could not be sent.
func NewNotifier(pool execer, listener *Listener, log *slog.Logger) *Notifier {
	return &Notifier{pool: pool, listener: listener, log: log, due: make(map[Notification]struct{})}
}

// Notify wakes those in this process who wait for what is in s, before it returns, and sends s to the others soon. It
// is called after the commit.
func (n *Notifier) Notify(s *Set) {
	if len(s.due) == 0 {
		return
	}
	n.mu.Lock()
	for k := range s.due {
		n.due[k] = struct{}{}
	}
	if !n.scheduled {
		n.scheduled = true
		go n.sendAll()
	}
	n.mu.Unlock()
	for k := range s.due {
		n.listener.wake(k.Channel, k.Payload)
	}
}

// sendAll sends what is due, and again after a pause what has come meanwhile, until nothing has.
func (n *Notifier) sendAll() {
	for n.sendDue() {
		time.Sleep(sendInterval)
	}
}

// sendDue sends what is due; false: nothing is, and the next notification begins to send anew.
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

// Flush sends what is due and returns when that, and what is on its way, has been sent or given up.
func (n *Notifier) Flush() {
	n.sending.Lock()
	defer n.sending.Unlock()
	if channels, payloads := n.take(false); len(channels) > 0 {
		if err := n.send(channels, payloads); err != nil {
			n.failing.Log(n.log, "notifications were not sent; listeners poll instead: check the database", "error", err)
		}
	}
}

// take returns the notifications that are due. To the sender that finds none the next one is left to begin anew.
func (n *Notifier) take(sender bool) (channels, payloads []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
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
