package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/notify"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// concurrentReads limits how many subscriptions of a hub read pages of their own at a time, so that the pool has
// connections for others.
const concurrentReads = 4

// Hub has the tailers of a process. A hub without tailers uses no connection and no goroutine.
type Hub struct {
	q        *db.Queries
	runner   pgtx.Runner
	listener *notify.Listener
	log      *slog.Logger
	failing  warn.Repeated
	reads    chan struct{}

	mu      sync.Mutex
	tailers map[Name]*opening
	watch   *notify.Watch
	users   int
}

// opening is a tailer, once begun is closed, or an error.
type opening struct {
	t     *tailer
	begun chan struct{}
	err   error
}

// Of returns the hub of an engine, which reads from the engine's own pool.
func Of(c *core.Core) *Hub {
	return core.Memory(c, func() *Hub {
		c := c.Base()
		return &Hub{
			q: c.Q, runner: c.Runner, listener: c.Listener, log: c.Log,
			reads: make(chan struct{}, concurrentReads), tailers: make(map[Name]*opening),
		}
	})
}

// Subscribe follows an outbox until ctx ends or [Subscription.Close] is called. The subscription gets the events of
// every transaction committed after Subscribe has returned. Without a position, Subscribe may wait for open
// transactions with writes to the outbox, until ctx ends.
//
// Errors: [*GapError], [*NotKeptError], [*AheadError], [*StandbyError], [*DeniedError], [*UnreadableError], the driver's.
func (h *Hub) Subscribe(ctx context.Context, outbox Name, o Options) (*Subscription, error) {
	src := sources[outbox]
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t, err := h.enter(ctx, src, o.After)
		if err != nil {
			return nil, readable(src, err)
		}
		if t == nil {
			continue // the tailer has just ended
		}
		s := &Subscription{
			tailer: t, filter: o.Filter, buffer: o.Buffer, notices: o.Notices,
			ready: make(chan struct{}, 1), over: make(chan struct{}), left: make(chan struct{}),
		}
		if err := t.place(ctx, s, o.After); err != nil {
			h.exit(t)
			return nil, readable(src, err)
		}
		s.watch(ctx)
		return s, nil
	}
}

// readable returns err, or an UnreadableError if err means that the table lacks expected columns.
func readable(src *source, err error) error {
	if isDrift(err) {
		return &UnreadableError{src.name, 0, err}
	}
	return err
}

// enter returns the tailer for an outbox, starting one if necessary, or nil if the tailer stopped in the meantime.
// Callers must pair enter with exit.
func (h *Hub) enter(ctx context.Context, src *source, after *int64) (*tailer, error) {
	h.mu.Lock()
	o, here := h.tailers[src.name]
	if !here {
		living, stop := context.WithCancel(context.Background())
		o = &opening{begun: make(chan struct{}), t: &tailer{
			hub: h, source: src, rechecks: make(chan struct{}, 1), living: living, stop: stop, ended: make(chan struct{}),
			subs: make(map[*Subscription]struct{}),
		}}
		h.tailers[src.name] = o
	}
	o.t.users++
	h.mu.Unlock()
	if !here {
		h.begin(ctx, o, after)
	}
	select {
	case <-o.begun:
	case <-ctx.Done():
		h.exit(o.t)
		return nil, ctx.Err()
	}
	if o.err != nil {
		h.exit(o.t)
		if here && ctx.Err() == nil {
			return nil, nil // another subscription started the tailer; the end of that subscription's context may have caused the error
		}
		return nil, o.err
	}
	h.mu.Lock()
	over := h.tailers[src.name] != o
	h.mu.Unlock()
	if over {
		h.exit(o.t)
		return nil, nil
	}
	return o.t, nil
}

// begin starts a tailer.
func (h *Hub) begin(ctx context.Context, o *opening, after *int64) {
	defer close(o.begun)
	err := o.t.check(ctx, after)
	if err == nil {
		err = o.t.begin(ctx, after)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		o.err = err
		delete(h.tailers, o.t.source.name)
		close(o.t.ended)
		return
	}
	if h.users == 0 {
		h.watch = h.listen()
	}
	h.users++
	leave := h.listener.Join(o.t.source.channel, func(string) { o.t.recheck() })
	go func() {
		o.t.run()
		leave()
		h.mu.Lock()
		h.users--
		var unused *notify.Watch
		if h.users == 0 {
			unused, h.watch = h.watch, nil
		}
		h.mu.Unlock()
		if unused != nil {
			unused.Close()
		}
		close(o.t.ended)
	}()
}

// exit releases a tailer, and the last exit stops the tailer.
func (h *Hub) exit(t *tailer) {
	h.mu.Lock()
	t.users--
	last := t.users == 0
	if last {
		h.drop(t)
	}
	h.mu.Unlock()
	if last {
		t.stop()
		<-t.ended
	}
}

// retire makes later subscriptions start another tailer.
func (h *Hub) retire(t *tailer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(t)
}

func (h *Hub) drop(t *tailer) {
	if o := h.tailers[t.source.name]; o != nil && o.t == t {
		delete(h.tailers, t.source.name)
	}
}

func (t *tailer) leave(s *Subscription) {
	t.mu.Lock()
	delete(t.subs, s)
	t.mu.Unlock()
	t.hub.exit(t)
}

func (t *tailer) recheck() {
	select {
	case t.rechecks <- struct{}{}:
	default:
	}
}

// check returns an error unless an outbox can be followed, from a position if there is one.
func (t *tailer) check(ctx context.Context, after *int64) error {
	name := t.source.name
	last, err := t.lastEvent(ctx, math.MaxInt64) // before the state, so the sequence of the state is not behind the event
	if err != nil {
		return err
	}
	state, err := t.state(ctx)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &UnreadableError{name, 0, fmt.Errorf("%s.event_id has no sequence", t.source.table)}
	case err != nil:
		return err
	case state.Standby:
		return &StandbyError{}
	case !state.Dense:
		return &UnreadableError{name, 0, fmt.Errorf("the sequence of %s.event_id has a cache, an increment or a cycle: ALTER SEQUENCE … CACHE 1 INCREMENT 1 NO CYCLE", t.source.table)}
	case last > state.LastEventID:
		return &UnreadableError{name, 0, fmt.Errorf("the sequence of %s.event_id is at %d, behind the event %d: setval it to that", t.source.table, state.LastEventID, last)}
	case after == nil:
		return nil
	case *after < state.FloorEventID:
		return &GapError{name, *after, state.FloorEventID}
	case *after > state.LastEventID:
		return &AheadError{name, *after, state.LastEventID}
	}
	return nil
}

// place adds a subscription to the tailer, at its position or at the present end.
func (t *tailer) place(ctx context.Context, s *Subscription, after *int64) error {
	t.mu.Lock()
	kept := t.kept
	t.mu.Unlock()
	if !s.filter.keeps(kept) {
		return &NotKeptError{t.source.name, core.Deref(after), kept}
	}
	if after != nil {
		if err := t.check(ctx, after); err != nil {
			return err
		}
		s.seen, s.given = *after, *after
		t.mu.Lock()
		defer t.mu.Unlock()
		t.add(s)
		return nil
	}
	t.mu.Lock()
	unproven := t.unproven
	if t.atEnd && unproven == 0 {
		s.seen, s.given = t.low, t.low
		t.add(s)
		t.mu.Unlock()
		return nil
	}
	t.mu.Unlock()
	now, err := t.settled(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prove(unproven)
	s.seen, s.given = now, now
	t.add(s)
	return nil
}

func (t *tailer) add(s *Subscription) {
	s.attached = s.seen >= t.low
	t.subs[s] = struct{}{}
}

// outage makes s wait before its next read of a page.
func (h *Hub) outage(ctx context.Context, s *Subscription, err error) {
	if s.retry == 0 {
		h.failing.Log(h.log, "events cannot be read; trying again: check the database and the rights of its role",
			"outbox", s.tailer.source.name, "error", err)
		s.reportLoss()
	}
	s.retry = min(max(2*s.retry, minRetry), maxRetry)
	_ = sleep(ctx, s.retry+time.Duration(rand.Int64N(int64(s.retry)/2)))
}

// Stats is the state of a tailer.
type Stats struct {
	Outbox        Name
	Low           int64     // the last delivered event
	Holding       time.Time // since when the next event is held back; zero: none is
	Holders       []int32   // process ids of writers whose ids may be missing; 0 for a prepared transaction
	GracePeriods  int
	Subscriptions int
}

// Stats returns the state of each tailer, by outbox.
func (h *Hub) Stats() []Stats {
	h.mu.Lock()
	var tailers []*tailer
	for _, o := range h.tailers {
		select {
		case <-o.begun:
			tailers = append(tailers, o.t)
		default:
		}
	}
	h.mu.Unlock()
	stats := make([]Stats, len(tailers))
	for i, t := range tailers {
		t.mu.Lock()
		stats[i] = t.stats
		stats[i].Outbox, stats[i].Low, stats[i].Subscriptions = t.source.name, t.low, len(t.subs)
		stats[i].Holders = slices.Clone(t.stats.Holders)
		t.mu.Unlock()
	}
	slices.SortFunc(stats, func(a, b Stats) int { return slices.Index(names, a.Outbox) - slices.Index(names, b.Outbox) })
	return stats
}

var names = []Name{Completion, Lease, Signal, Operator}

// observe records the state of the follower, and logs the transactions that hold back events for long, once.
func (t *tailer) observe(again time.Duration) {
	f := &t.follower
	t.stats.GracePeriods = f.graces
	if again == whenWoken || f.hole.since.IsZero() {
		t.stats.Holding, t.stats.Holders = time.Time{}, nil
		return
	}
	if !t.stats.Holding.Equal(f.hole.since) {
		t.stats.Holding, t.logged = f.hole.since, false
	}
	t.stats.Holders = nil
	if f.grace != nil {
		t.stats.Holders = slices.Clone(f.grace.holders)
	}
	if age := f.now().Sub(f.hole.since); age > longHold && !t.logged {
		t.logged = true
		t.hub.log.Warn("events are held back by transactions that have written to the outbox and have not ended: end the sessions of these processes",
			"outbox", t.source.name, "after", t.low, "for", age, "process_ids", slices.Clone(t.stats.Holders))
	}
}
