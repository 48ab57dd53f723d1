package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/id"
)

// Channels that are notified after a commit. A notification is a hint: whoever misses one finds the
// rows at its next poll.
const (
	readyChannel      = "ffx_ready" // payload: the lane that has work
	leaseChannel      = "ff_lease_event"
	completionChannel = "ff_completion"
)

const (
	ringInterval = 10 * time.Millisecond
	ringTimeout  = 5 * time.Second
)

// A ring is one notification; equal ones are merged.
type ring struct {
	channel string
	payload string
}

// rings are the notifications that one transaction owes once it has been committed.
type rings struct {
	due  map[ring]struct{}
	left bool // a completion event that is to be dispatched
}

func (r *rings) add(channel, payload string) {
	if r.due == nil {
		r.due = make(map[ring]struct{}, 2)
	}
	r.due[ring{channel, payload}] = struct{}{}
}

func (r *rings) lane(lane string) { r.add(readyChannel, lane) }

func (r *rings) leases() { r.add(leaseChannel, "") }

func (r *rings) completions() { r.add(completionChannel, "") }

// undispatched tells this engine alone: others find the event when they look.
func (r *rings) undispatched() { r.left = true }

// doorbell notifies after commits, off their path: a commit that carries a NOTIFY is serialised with
// every other such commit of the cluster. All rings of ten milliseconds travel in one statement, one at a
// time; the first after a pause goes at once. Nothing is lost with a notification, so its own commit does
// not wait for the disk.
//
// Who listens by the same engine hears of work right after the commit, without the server.
type doorbell struct {
	pool *pgxpool.Pool
	ears *ears
	log  *slog.Logger

	left chan struct{} // has room for one

	mu        sync.Mutex
	due       map[ring]struct{}
	scheduled bool // until what is due has been sent
}

func newDoorbell(pool *pgxpool.Pool, ears *ears, log *slog.Logger) *doorbell {
	return &doorbell{pool: pool, ears: ears, log: log, left: make(chan struct{}, 1), due: make(map[ring]struct{})}
}

func (d *doorbell) ring(r *rings) {
	if r.left {
		select {
		case d.left <- struct{}{}:
		default:
		}
	}
	if len(r.due) == 0 {
		return
	}
	d.schedule(r)
	for k := range r.due {
		if k.channel == readyChannel {
			d.ears.tell(id.LaneID(k.payload))
		}
	}
}

// schedule sends what is due from now on.
func (d *doorbell) schedule(r *rings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range r.due {
		d.due[k] = struct{}{}
	}
	if !d.scheduled {
		d.scheduled = true
		go d.send()
	}
}

// send notifies of what is due, and again after a pause of what has come meanwhile, until nothing has.
func (d *doorbell) send() {
	for {
		channels, payloads := d.take()
		if len(channels) == 0 {
			return
		}
		if err := d.notify(channels, payloads); err != nil {
			d.log.Warn("doorbell not rung; readers will poll", "error", err)
		}
		time.Sleep(ringInterval)
	}
}

// take returns the rings that are due. When there are none the next ring begins to send anew.
func (d *doorbell) take() (channels, payloads []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.due {
		channels = append(channels, k.channel)
		payloads = append(payloads, k.payload)
	}
	clear(d.due)
	d.scheduled = len(channels) > 0
	return channels, payloads
}

func (d *doorbell) notify(channels, payloads []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ringTimeout)
	defer cancel()
	_, err := d.pool.Exec(ctx, `
		SELECT pg_notify(r.channel, r.payload), set_config('synchronous_commit', 'off', true)
		FROM unnest($1::text[], $2::text[]) AS r (channel, payload)`,
		channels, payloads)
	return err
}
