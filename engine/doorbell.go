package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
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
	due map[ring]struct{}
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

// doorbell notifies after commits, off their path: a commit that carries a NOTIFY is serialised with
// every other such commit of the cluster. All rings of ten milliseconds travel in one statement; the
// first after a pause goes at once.
type doorbell struct {
	pool *pgxpool.Pool
	log  *slog.Logger

	mu        sync.Mutex
	due       map[ring]struct{}
	scheduled bool
	last      time.Time
}

func newDoorbell(pool *pgxpool.Pool, log *slog.Logger) *doorbell {
	return &doorbell{pool: pool, log: log, due: make(map[ring]struct{})}
}

func (d *doorbell) ring(r *rings) {
	if len(r.due) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range r.due {
		d.due[k] = struct{}{}
	}
	if d.scheduled {
		return
	}
	d.scheduled = true
	time.AfterFunc(max(0, ringInterval-time.Since(d.last)), d.send)
}

func (d *doorbell) send() {
	d.mu.Lock()
	channels := make([]string, 0, len(d.due))
	payloads := make([]string, 0, len(d.due))
	for k := range d.due {
		channels = append(channels, k.channel)
		payloads = append(payloads, k.payload)
	}
	clear(d.due)
	d.last = time.Now()
	d.scheduled = false
	d.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), ringTimeout)
	defer cancel()
	_, err := d.pool.Exec(ctx,
		"select pg_notify(r.channel, r.payload) from unnest($1::text[], $2::text[]) as r(channel, payload)",
		channels, payloads)
	if err != nil {
		d.log.Warn("doorbell not rung; readers will poll", "error", err)
	}
}
