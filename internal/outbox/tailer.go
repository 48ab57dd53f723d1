package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/state"
)

const (
	mergeWakes = 5 * time.Millisecond

	pollListening = time.Second
	pollDeaf      = 250 * time.Millisecond

	minRetry, maxRetry = 200 * time.Millisecond, 5 * time.Second

	longHold = 5 * time.Second // when to log a hold
)

// tailer reads one outbox for all its subscriptions.
type tailer struct {
	hub      *Hub
	source   *source
	rechecks chan struct{}
	living   context.Context
	stop     context.CancelFunc
	ended    chan struct{}
	users    int // guarded by hub.mu

	follower follower // only for the goroutine

	mu       sync.Mutex
	low      int64
	unproven int64 // up to this id, an event may be open before the position of a subscription; 0: none
	atEnd    bool  // the last pass left no events to hand on
	kept     state.Kept
	subs     map[*Subscription]struct{}
	stats    Stats
	logged   bool
}

func (t *tailer) page(ctx context.Context, from, to int64, limit int) (page, error) {
	return t.source.read(ctx, t.hub.q, t.hub.runner.AtOnce(), db.ReadCompletionEventsParams{
		FromEventID: from, ToEventID: to, PageSize: int32(limit),
	})
}

func (t *tailer) state(ctx context.Context) (db.GetOutboxStateRow, error) {
	state, err := t.hub.q.GetOutboxState(ctx, t.hub.runner.AtOnce(), db.GetOutboxStateParams{
		Outbox: string(t.source.name), OutboxTable: t.source.table,
	})
	if err == nil && !state.Readable {
		err = &DeniedError{Role: state.RoleName, Sequence: state.SequenceName}
	}
	return state, err
}

func (t *tailer) writers(ctx context.Context) ([]db.ListOutboxWritersRow, error) {
	return t.hub.q.ListOutboxWriters(ctx, t.hub.runner.AtOnce(), t.source.table)
}

func (t *tailer) lastEvent(ctx context.Context, upTo int64) (int64, error) {
	return t.hub.q.GetLastEvent(ctx, t.hub.runner.AtOnce(), db.GetLastEventParams{Outbox: string(t.source.name), UpToEventID: upTo})
}

func (t *tailer) runs(ctx context.Context, w witness) (bool, error) {
	return t.hub.q.GetWitnessRuns(ctx, t.hub.runner.AtOnce(), w)
}

// settled waits until all transactions with writes to the outbox before the call have ended, and returns the last event
// at the time of the call.
func (t *tailer) settled(ctx context.Context) (int64, error) {
	for {
		state, err := t.state(ctx)
		if err != nil {
			return 0, err
		}
		writers, err := t.writers(ctx)
		if err != nil {
			return 0, err
		}
		g := newGrace(state, writers)
		for pause := firstLook; !g.over(writers); pause = min(2*pause, lastLook) {
			if err := sleep(ctx, pause); err != nil {
				return 0, err
			}
			if writers, err = t.writers(ctx); err != nil {
				return 0, err
			}
		}
		last, err := t.lastEvent(ctx, g.upTo)
		if err != nil {
			return 0, err
		}
		switch runs, err := t.runs(ctx, g.witness); {
		case err != nil:
			return 0, err
		case runs:
			return last, nil
		}
	}
}

// begin chooses the start: without writers, the end of the outbox. Otherwise the position of the first subscription, or
// the end, with an event below that may still be open.
func (t *tailer) begin(ctx context.Context, after *int64) error {
	state, err := t.state(ctx)
	if err != nil {
		return err
	}
	writers, err := t.writers(ctx)
	if err != nil {
		return err
	}
	if t.low, err = t.lastEvent(ctx, state.LastEventID); err != nil {
		return err
	}
	calm := len(writers) == 0
	if calm {
		if calm, err = t.runs(ctx, state.Witness); err != nil {
			return err
		}
	}
	if !calm {
		if after != nil {
			t.low = *after
		}
		t.unproven = t.low
	}
	t.atEnd = true
	t.follower = follower{db: t, outbox: t.source.name, now: time.Now, low: t.low}
	p, err := t.page(ctx, t.low, t.low, 1)
	if err == nil && len(p.rows) == 1 {
		t.follower.last = p.rows[0]
	}
	t.kept = p.kept
	return err
}

// run reads until the last subscription has left.
func (t *tailer) run() {
	var retry time.Duration
	outage, losses := false, t.hub.losses()
	for {
		start := time.Now()
		low, last := t.follower.low, t.follower.last
		rows, again, err := t.follower.pass(t.living)
		if err == nil {
			if err = t.handOn(rows, again); err != nil {
				t.follower.back(low, last) // to read the remaining events again
			}
		}
		if t.living.Err() != nil {
			return
		}
		if gap, ok := errors.AsType[*GapError](err); ok {
			t.skip(gap)
			continue
		}
		switch lost := t.hub.losses(); {
		case err != nil:
			if t.fails(err) {
				return
			}
			if !outage {
				t.hub.failing.Log(t.hub.log, "events cannot be read; trying again: check the database and the rights of its role",
					"outbox", t.source.name, "error", err)
				t.reportLosses()
			}
			outage = true
			retry = min(max(2*retry, minRetry), maxRetry)
			again = retry + time.Duration(rand.Int64N(int64(retry)/2))
		case lost != losses:
			if !outage {
				t.reportLosses()
			}
			outage, losses, retry = false, lost, 0
		default:
			outage, retry = outage && t.hub.silent(), 0
		}
		if again == 0 {
			continue
		}
		if !t.wait(start, again, err != nil) {
			return
		}
	}
}

// wait waits until the next pass is due: again has passed, a transaction has written, or it is time to poll.
func (t *tailer) wait(start time.Time, again time.Duration, failing bool) bool {
	if again == whenWoken {
		again = pollListening
		if t.hub.silent() {
			again = pollDeaf
		}
	}
	rechecks := t.rechecks
	if failing {
		rechecks = nil
	}
	timer := time.NewTimer(again)
	defer timer.Stop()
	select {
	case <-t.living.Done():
		return false
	case <-timer.C:
		return true
	case <-rechecks:
		return sleep(t.living, mergeWakes-time.Since(start)) == nil
	}
}

// handOn hands events to all attached subscriptions, and moves low.
func (t *tailer) handOn(rows []*Row, again time.Duration) error {
	of, err := t.hub.lookUp(t.living, rows)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = t.follower.kept
	for s := range t.subs {
		if s.attached && !s.filter.keeps(t.kept) { // detached ones find it themselves
			s.fail(&NotKeptError{t.source.name, s.position(), t.kept})
		}
		for i, row := range rows {
			if s.attached && !s.offer(row, of[i]) {
				s.attached = false // s reads its events itself until its buffer is free
			}
		}
	}
	t.low, t.atEnd = t.follower.low, again != 0
	t.observe(again)
	return nil
}

// skip continues after deleted events and ends the subscriptions that may have missed them. Detached subscriptions find
// the gap themselves.
func (t *tailer) skip(gap *GapError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.subs {
		if position := s.position(); s.attached && position < gap.Floor {
			s.fail(&GapError{gap.Outbox, position, gap.Floor})
		}
	}
	t.low, t.unproven = gap.Floor, 0 // after a grace period
	t.follower.back(gap.Floor, nil)
}

// fails reports whether err ends the tailer, and sends err to its subscriptions.
func (t *tailer) fails(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	ahead, isAhead := errors.AsType[*AheadError](err)
	if !isAhead && !isDrift(err) {
		return false
	}
	t.hub.retire(t)
	for s := range t.subs {
		if isAhead {
			s.fail(&AheadError{ahead.Outbox, s.position(), ahead.Database})
		} else {
			s.fail(&UnreadableError{t.source.name, s.position(), err})
		}
	}
	return true
}

func (t *tailer) reportLosses() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.subs {
		s.reportLoss()
	}
}

// hands reports whether the tailer hands events to s.
func (t *tailer) hands(s *Subscription) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.attached || s.failed()
}

func (s *Subscription) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.closed != nil
}

// attach makes the tailer deliver to s from now on, if s has caught up.
func (t *tailer) attach(s *Subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, here := t.subs[s]; here && s.position() >= t.low {
		s.attached = true
	}
}

// final returns how far s may read. Up to unproven, unless that is 0, an event may be open.
func (t *tailer) final(s *Subscription) (low, unproven int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.position() >= t.unproven {
		return t.low, 0
	}
	return t.low, t.unproven
}

// proven waits for the transactions with writes at the given value of unproven.
func (t *tailer) proven(ctx context.Context, unproven int64) error {
	if _, err := t.settled(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prove(unproven)
	return nil
}

// prove records the end of all transactions with writes at the given value of unproven. t.mu is held.
func (t *tailer) prove(unproven int64) {
	if t.unproven == unproven {
		t.unproven = 0
	}
}

func (t *tailer) reached() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.low
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
