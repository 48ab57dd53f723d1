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
	"github.com/flowfabric/flowfabric-go/state"
)

// fetcher claims for all handlers of a worker. It takes the lanes in turn, and many lanes in one transaction, while a
// handler is free or the queue before the handlers is not full. The queue holds about as much as the handlers finish in
// prefetchFor, and is empty for slow handlers, so work hardly ever waits in one process while another is idle.
type fetcher struct {
	*run

	// unfilled is set when a woken lane returned less than the fetcher asked for. The rest may lie before the claimer's
	// scan position, so the fetcher polls more often for a while.
	unfilled bool

	// Tasks settled by this goroutine until it has stopped: tasks not started; if the worker claims one by one, all
	// others; else tasks with a place in a limit, if no other task waits for a handler, so that the next one starts in
	// the same transaction.
	settler settler
	ended   []*task
	stopped chan struct{}

	failing   warn.Repeated
	quick     bool // handlers will soon be free again
	prefetch  int
	claimed   int // executions since the start
	paceAt    time.Time
	paceCount int           // executions finished at paceAt
	paceRan   time.Duration // total running time of handlers at paceAt
}

const (
	prefetchFor = 20 * time.Millisecond

	leastShare      = 10                     // smallest share of a lane while handlers are quick
	lanesTogether   = 16                     // most lanes claimed from in one transaction, FetchBatch executions at most
	claimsAtOnce    = 2                      // concurrent claim transactions; 1 if the worker claims one by one
	firstRecheck    = 100 * time.Millisecond // first poll after a claim that left handlers free
	haltedRest      = 100 * time.Millisecond // rest after a claim from a halted lane, despite notifications
	firstFetchPause = 100 * time.Millisecond // first pause after a failure
	maxFetchPause   = 5 * time.Second
)

// fetch claims until ctx ends. Then it gives the queued tasks back.
func (f *fetcher) fetch(ctx context.Context) {
	failing := backoff.Backoff{First: firstFetchPause, Max: maxFetchPause}
	poll, pause := time.NewTimer(0), time.Duration(0)
	defer poll.Stop()
	handled := f.places
	if f.oneByOne() {
		handled = f.handled
	}
	f.settler = settler{run: f.run, tasks: handled}
	for ctx.Err() == nil {
		f.life.turnedAt.Store(int64(time.Since(f.began)))
		f.gatherEnded()
		if capacity := f.capacity(); capacity > 0 && f.anyDue() {
			err := f.claim(ctx, capacity)
			f.settleEnded()
			if err != nil && ctx.Err() == nil {
				pause := failing.Next()
				f.failing.Log(f.cfg.Log, "cannot claim; retrying: check the database and the rights of its role", "error", err, "retry_in", pause)
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
			runtime.Gosched() // let handlers that end now add their tasks
		case <-f.recheck:
		case <-poll.C:
			if pause < f.cfg.PollInterval {
				f.dueAll() // even if a poll would find nothing new: the rest may be before the scan position
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

// returnUnstarted gives a task back. A settler may be waiting for this goroutine, so returnUnstarted uses none.
func (f *fetcher) returnUnstarted(t *task) {
	t.verdict = giveBack
	t.end()
	f.ended = append(f.ended, t)
}

// capacity returns how many executions to claim. After a result of 0, a handler or the retrier notifies the fetcher
// once more fit.
func (f *fetcher) capacity() int {
	limit := f.cfg.handlers() + f.prefetch
	if now := time.Now(); f.late.throttled(now) {
		return f.throttledCapacity(now)
	}
	enough := limit - max(1, f.prefetch/2)
	f.refillAt.Store(int64(enough))
	if load := int(f.load.Load()); load <= enough && !f.retrier.full() {
		return limit - load
	}
	return 0
}

// throttledCapacity is capacity for a worker that renewed leases late. It counts all held executions, including
// unsettled ones, and returns 0 during a renewal. Renewals and settlements then notify the fetcher.
func (f *fetcher) throttledCapacity(now time.Time) int {
	if f.renews.Load() || f.retrier.full() {
		return 0
	}
	return max(0, f.late.holds(now)-f.held.len())
}

// laneClaim is one claim from one lane.
type laneClaim struct {
	lane     *lane
	n        int // largest number to claim
	calledAt time.Time
	claimed  []engine.Claimed
	err      error
}

// claim gives each lane that may have work its share of the capacity. The unused part of a share goes to the following
// lanes, then to the next round.
func (f *fetcher) claim(ctx context.Context, capacity int) error {
	f.pace()
	due := slices.DeleteFunc(slices.Clone(f.lanes), func(l *lane) bool { return !l.due || l.slots.full() })
	slices.SortStableFunc(due, func(a, b *lane) int { return cmp.Compare(a.taken, b.taken) })
	atOnce := min(claimsAtOnce, len(due))
	if f.settlesEnded() {
		atOnce = 1
	}
	answers := make(chan []*laneClaim, max(1, atOnce))
	underWay := 0
	var failed error
	for {
		for failed == nil && ctx.Err() == nil && underWay < atOnce && len(due) > 0 && capacity > 0 {
			var claims []*laneClaim
			if claims, due = f.together(due, capacity); len(claims) == 0 {
				break
			}
			underWay++
			for _, c := range claims {
				capacity -= c.n
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
		// Handle answers as they come, since waiting for the slowest claim may lose the leases of the others.
		claims := <-answers
		underWay--
		for _, c := range claims {
			capacity += c.n - len(c.claimed)
			c.lane.slots.giveBack(c.n - len(c.claimed))
			failed = cmp.Or(failed, c.err)
			f.learnFrom(c)
			f.hand(ctx, c.claimed, c.calledAt)
		}
	}
}

// together returns the claims for the next transaction, from the first lanes in due, and the other lanes. One commit per
// lane would cost too much for a few executions each.
func (f *fetcher) together(due []*lane, capacity int) (claims []*laneClaim, rest []*lane) {
	most := lanesTogether
	if len(f.ended) > 0 {
		most = 1 // with the completions
	}
	for left := min(capacity, f.cfg.FetchBatch); len(due) > 0 && len(claims) < most && left > 0; due = due[1:] {
		c := &laneClaim{lane: due[0], n: due[0].slots.free(f.share(capacity, len(due)))}
		if c.n > left && len(claims) > 0 {
			break
		}
		if c.n == 0 { // the same kind is claimed from another lane
			continue
		}
		c.lane.slots.take(c.n)
		claims = append(claims, c)
		capacity, left = capacity-c.n, left-c.n
	}
	return claims, due
}

// share returns how much of the capacity each of the given number of lanes may claim. Shares are equal. With quick
// handlers, more capacity comes soon, so a minimum share avoids one claim per execution; lanes left out come first in
// the next round. A maximum avoids the full scan after asking for more than the lane has.
func (f *fetcher) share(capacity, lanes int) int {
	n := (capacity + lanes - 1) / lanes
	if f.quick {
		n = max(n, min(capacity, leastShare))
	}
	return min(n, f.cfg.FetchBatch)
}

// ask makes claims that form one transaction.
func (f *fetcher) ask(claims []*laneClaim) []*laneClaim {
	// The fetcher's context does not end the call: an interrupted claim may be committed, and then its leases would have to
	// expire.
	calling, cancel := context.WithTimeout(f.drained, callTimeout)
	defer cancel()
	calledAt := time.Now()
	for _, c := range claims {
		c.calledAt = calledAt
	}
	if first := claims[0]; len(claims) > 1 {
		f.settling.claimEach(calling, claims)
	} else if f.settlesEnded() {
		first.claimed, first.err = f.take(calling, first.lane, first.n)
	} else {
		first.claimed, first.err = first.lane.claimer.Claim(calling, first.n)
	}
	return claims
}

// learnFrom updates a lane after a claim from it.
func (f *fetcher) learnFrom(c *laneClaim) {
	l := c.lane
	f.answered(c.err)
	if c.err != nil {
		l.taken += c.n // if this lane keeps failing, the others come first
		return
	}
	f.noteAnswer(l)
	l.taken += len(c.claimed)
	l.started.Add(int64(len(c.claimed)))
	if l.due = len(c.claimed) == c.n; !l.due {
		f.savesNothing(l)
	}
	f.unfilled = f.unfilled || l.expected && !l.due && l.halt == state.NotHalted
	l.expected = false
}

// gatherEnded collects the tasks that handlers have finished.
func (f *fetcher) gatherEnded() {
	before := len(f.ended)
	f.ended = f.settler.gather(f.ended)
	f.load.Add(int64(before - len(f.ended)))
	for _, t := range f.ended {
		if t.work.Limited {
			f.expectNext(t)
		}
	}
}

// settlesEnded reports whether claims complete finished tasks.
func (f *fetcher) settlesEnded() bool { return f.oneByOne() || len(f.ended) > 0 }

// expectNext makes the lane of a finished task due, since another execution may take its place.
func (f *fetcher) expectNext(t *task) {
	for _, l := range f.lanes {
		l.due = l.due || l.name == t.work.Lease.Lane
	}
}

// take claims from a lane and completes finished tasks in the same transaction.
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
			f.retrier.put(left, reason)
		}
	}
	return claimed, err
}

// settleEnded settles the finished tasks that no claim has completed.
func (f *fetcher) settleEnded() {
	if len(f.ended) == 0 {
		return
	}
	f.settler.commit(f.ended)
	clear(f.ended)
	f.ended = f.ended[:0]
}

// hand passes claimed executions to the handlers.
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
	f.noteLate(tasks, receivedAt, false)
	f.claimed += len(tasks)
	f.load.Add(int64(len(tasks)))
	for _, t := range tasks {
		if ctx.Err() != nil {
			f.returnUnstarted(t)
			continue
		}
		f.queue <- t
	}
	// Let waiting handlers run before preparing the next claim.
	runtime.Gosched()
}

// pace adapts the queue length to the speed of the handlers.
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

// handlersAreQuick reports whether handlers will soon be free: the n executions finished since paceAt took less than
// prefetchFor on average. If n is not above the current load of the handlers, the average is not representative.
func (f *fetcher) handlersAreQuick(n int) bool {
	ran := time.Duration(f.ran.Load())
	took := ran - f.paceRan
	f.paceRan = ran
	return n > int(f.load.Load())-len(f.queue) && took < time.Duration(n)*prefetchFor
}

// maxQueued returns the queue length that keeps handlers busy between two claims.
func maxQueued(cfg Config) int { return 2 * cfg.FetchBatch }
