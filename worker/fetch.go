package worker

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// A fetcher claims for all handlers of a worker: from all lanes in turn, from many in one transaction, for as much as
// there is room. Room is a free handler, or a place in the queue before the handlers. The queue holds what they finish in
// prefetchFor, so it is empty where executions take long, and work hardly ever waits in one process while another
// process is idle.
type fetcher struct {
	*run

	// unfilled: less was claimed than there was room for, although the worker had been woken. The rest may stand
	// where the claimer has not looked, so polls become frequent for a while.
	unfilled bool

	// What this goroutine settles: tasks that are not started, and, of a worker that claims one by one, until it has
	// stopped, all others too.
	settler settler
	ended   []*task
	stopped chan struct{}

	failing     warn.Repeated
	saidDrained bool // the log knows that an operator has drained the worker
	quick       bool // handlers soon have room again
	prefetch    int
	claimed     int // executions, since the start
	paceAt      time.Time
	paceCount   int           // executions finished at paceAt
	paceRan     time.Duration // how long handlers had run for by paceAt, all together
}

const (
	prefetchFor = 20 * time.Millisecond

	leastShare      = 10                     // of the room for one lane, while handlers are quick
	lanesTogether   = 16                     // claimed from in one transaction, FetchBatch executions at most
	claimsAtOnce    = 2                      // such transactions; of a worker that claims one by one 1
	firstRecheck    = 100 * time.Millisecond // after a claim that left room
	haltedRest      = 100 * time.Millisecond // after a claim from a lane that is halted, whoever wakes it
	firstFetchPause = 100 * time.Millisecond // after a failure
	maxFetchPause   = 5 * time.Second
)

// fetch claims until ctx ends. Then what is still queued goes back.
func (f *fetcher) fetch(ctx context.Context) {
	failing := backoff.Backoff{First: firstFetchPause, Max: maxFetchPause}
	poll, pause := time.NewTimer(0), time.Duration(0)
	defer poll.Stop()
	var handled <-chan *task
	if f.oneByOne() {
		handled = f.handled
	}
	f.settler = settler{run: f.run, tasks: handled}
	for ctx.Err() == nil {
		f.gatherEnded()
		if room := f.room(); room > 0 && f.anyDue() {
			err := f.claim(ctx, room)
			f.settleEnded()
			if err != nil && ctx.Err() == nil {
				pause := failing.Next()
				f.failing.Log(f.cfg.Log, "cannot claim; it is tried again: check the database and the rights of its role", "error", err, "retry_in", pause)
				backoff.Wait(ctx, pause)
				continue
			}
			failing.Reset()
			if f.unfilled {
				f.unfilled, pause = false, min(firstRecheck, f.cfg.PollInterval)
				poll.Reset(pause)
			}
			continue
		}
		f.settleEnded()
		select {
		case <-ctx.Done():
		case t := <-handled:
			f.ended = append(f.ended, t)
			f.load.Add(-1)
		case <-f.roused:
		case <-poll.C:
			if pause < f.cfg.PollInterval {
				f.dueAll() // also where no more is queued than there was: the rest may stand elsewhere
			} else {
				f.look(ctx)
			}
			if pause = min(2*pause, f.cfg.PollInterval); pause == 0 {
				pause = f.cfg.PollInterval
			}
			poll.Reset(backoff.Spread(pause))
		}
	}
	defer close(f.stopped)
	defer f.settleEnded()
	defer close(f.queue)
	for {
		select {
		case t := <-f.queue:
			f.returnUnstarted(t)
		default:
			return
		}
	}
}

// returnUnstarted gives a task back. Not by way of a settler: this goroutine may be the one that it waits for.
func (f *fetcher) returnUnstarted(t *task) {
	t.verdict = giveBack
	t.end()
	f.ended = append(f.ended, t)
}

// room is how much to claim, 0 while there is enough. Then the handlers rouse the fetcher when there no longer is, or
// the aside, when no longer too much waits there.
func (f *fetcher) room() int {
	limit := f.cfg.Concurrency + f.prefetch
	if now := time.Now(); f.late.throttled(now) {
		return f.throttledRoom(now)
	}
	enough := limit - max(1, f.prefetch/2)
	f.refillAt.Store(int64(enough))
	if load := int(f.load.Load()); load <= enough && !f.aside.full() {
		return limit - load
	}
	return 0
}

// throttledRoom is room for a worker that was late for its leases. All of them count, those of tasks to be settled too,
// and nothing is claimed while some are renewed. Renewals and settlements wake the fetcher then.
func (f *fetcher) throttledRoom(now time.Time) int {
	if f.renews.Load() || f.aside.full() {
		return 0
	}
	return max(0, f.late.of(f.cfg.Concurrency, now)-f.held.len())
}

// A laneClaim is one claim from one lane.
type laneClaim struct {
	lane     *lane
	n        int // asked for
	calledAt time.Time
	claimed  []engine.Claimed
	err      error
}

// claim gives each lane that may have work its share of the room. What a share leaves is for the lanes that have not
// had theirs, and then for the next round.
func (f *fetcher) claim(ctx context.Context, room int) error {
	f.pace()
	due := slices.DeleteFunc(slices.Clone(f.lanes), func(l *lane) bool { return !l.due })
	slices.SortStableFunc(due, func(a, b *lane) int { return cmp.Compare(a.taken, b.taken) })
	atOnce := min(claimsAtOnce, len(due))
	if f.oneByOne() {
		atOnce = 1
	}
	answers := make(chan []*laneClaim, max(1, atOnce))
	underWay := 0
	var failed error
	for {
		for failed == nil && ctx.Err() == nil && underWay < atOnce && len(due) > 0 && room > 0 {
			claims := f.together(due, room)
			due, underWay = due[len(claims):], underWay+1
			for _, c := range claims {
				room -= c.n
			}
			if atOnce == 1 {
				answers <- f.ask(claims)
			} else {
				go func() { answers <- f.ask(claims) }()
			}
		}
		if underWay == 0 {
			return failed
		}
		// As they come: who waits for the slowest may lose the leases of the others.
		claims := <-answers
		underWay--
		for _, c := range claims {
			room += c.n - len(c.claimed)
			failed = cmp.Or(failed, c.err)
			f.learnFrom(c)
			f.hand(ctx, c.claimed, c.calledAt)
		}
	}
}

// together returns the claims from the first of the lanes that make up one transaction: a commit for each would cost more
// than the few executions that there are in each of many lanes.
func (f *fetcher) together(due []*lane, room int) []*laneClaim {
	var claims []*laneClaim
	for i, left := 0, min(room, f.cfg.FetchBatch); i < min(len(due), lanesTogether) && left > 0; i++ {
		c := &laneClaim{lane: due[i], n: f.share(room, len(due)-i)}
		if c.n > left && i > 0 {
			break
		}
		claims = append(claims, c)
		room, left = room-c.n, left-c.n
	}
	return claims
}

// share is how much of the room one of so many lanes may claim. It is equal, but quick handlers soon have room again: a
// lane's share is not cut so small then that there is a claim for each execution, and the lanes that found no room come
// first in the next round. It is not large either: asking for more than waits costs a full scan.
func (f *fetcher) share(room, lanes int) int {
	n := (room + lanes - 1) / lanes
	if f.quick {
		n = max(n, min(room, leastShare))
	}
	return min(n, f.cfg.FetchBatch)
}

// ask makes claims that belong together.
func (f *fetcher) ask(claims []*laneClaim) []*laneClaim {
	// Not ended by the fetcher's context: a claim that is broken off may have been committed, and its leases would have
	// to run out.
	calling, cancel := context.WithTimeout(f.drained, callTimeout)
	defer cancel()
	calledAt := time.Now()
	for _, c := range claims {
		c.calledAt = calledAt
	}
	if first := claims[0]; len(claims) > 1 {
		f.settling.claimEach(calling, claims)
	} else if f.oneByOne() {
		first.claimed, first.err = f.take(calling, first.lane, first.n)
	} else {
		first.claimed, first.err = first.lane.claimer.Claim(calling, first.n)
	}
	return claims
}

// learnFrom takes note of what a claim says about its lane.
func (f *fetcher) learnFrom(c *laneClaim) {
	l := c.lane
	if c.err != nil {
		l.taken += c.n // the others first, should it be this lane that fails
		return
	}
	f.heed(l)
	l.taken += len(c.claimed)
	if l.due = len(c.claimed) == c.n; !l.due {
		f.savesNothing(l)
	}
	f.unfilled = f.unfilled || l.expected && !l.due && l.halt == engine.NotHalted
	l.expected = false
}

// gatherEnded takes what the handlers have ended meanwhile.
func (f *fetcher) gatherEnded() {
	before := len(f.ended)
	f.ended = f.settler.gather(f.ended)
	f.load.Add(int64(before - len(f.ended)))
}

// take claims from a lane, one by one, and completes in the same transaction what has succeeded.
func (f *fetcher) take(ctx context.Context, l *lane, n int) ([]engine.Claimed, error) {
	succeeded := open(f.ended, complete)
	if len(succeeded) == 0 {
		return l.claimer.Claim(ctx, n)
	}
	outcomes, claimed, err := l.claimer.CompleteAndClaim(ctx, completionsOf(succeeded), n)
	if err == nil {
		if reason := cmp.Or(settleCompleted(succeeded, outcomes)...); reason != nil {
			left := open(succeeded, complete)
			f.ended = without(f.ended, func(t *task) bool { return t.settlement == "" && t.verdict == complete })
			f.aside.put(left, reason)
		}
	}
	return claimed, err
}

// settleEnded settles what no claim has completed, and lets go of all.
func (f *fetcher) settleEnded() {
	if len(f.ended) == 0 {
		return
	}
	f.settler.commit(f.ended)
	clear(f.ended)
	f.ended = f.ended[:0]
}

// hand gives claimed executions to the handlers.
func (f *fetcher) hand(ctx context.Context, claimed []engine.Claimed, calledAt time.Time) {
	if len(claimed) == 0 {
		return
	}
	receivedAt := time.Now()
	tasks := make([]*task, len(claimed))
	for i := range claimed {
		tasks[i] = newTask(f.base, claimed[i], f.handlers[claimed[i].Kind], calledAt, receivedAt)
	}
	f.held.add(tasks)
	f.claimed += len(tasks)
	f.load.Add(int64(len(tasks)))
	for _, t := range tasks {
		if ctx.Err() != nil {
			f.returnUnstarted(t)
			continue
		}
		f.queue <- t
	}
	// The handlers first: they have been waiting for this, and the next claim is some work to put together.
	runtime.Gosched()
}

// pace adapts the length of the queue to how fast the handlers are.
func (f *fetcher) pace() {
	now := time.Now()
	elapsed := now.Sub(f.paceAt)
	if elapsed < prefetchFor {
		return
	}
	finished := f.claimed - int(f.load.Load())
	rate := float64(finished-f.paceCount) / float64(elapsed)
	f.quick = f.handlersAreQuick(finished - f.paceCount)
	f.prefetch = min((f.prefetch+int(rate*float64(prefetchFor)))/2, maxQueued(f.cfg))
	f.paceAt, f.paceCount = now, finished
}

// handlersAreQuick says whether handlers soon have room for others: the n executions finished since paceAt took them
// less than prefetchFor on average, and there were more of these than they have now, of which that says nothing.
func (f *fetcher) handlersAreQuick(n int) bool {
	ran := time.Duration(f.ran.Load())
	took := ran - f.paceRan
	f.paceRan = ran
	return n > int(f.load.Load())-len(f.queue) && took < time.Duration(n)*prefetchFor
}

// maxQueued keeps the handlers busy during two claims.
func maxQueued(cfg Config) int { return 2 * cfg.FetchBatch }
