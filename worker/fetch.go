package worker

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
)

// A fetcher claims for all handlers of a worker: one statement at a time, from all lanes in turn, for as much as there
// is room. Room is a free handler, or a place in the queue before the handlers. The queue holds what they finish in
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

	saidDrained bool // the log knows that an operator has drained the worker
	prefetch    int
	claimed     int // executions, since the start
	paceAt      time.Time
	paceCount   int // executions finished at paceAt
}

const (
	prefetchFor = 20 * time.Millisecond

	firstRecheck    = 100 * time.Millisecond // after a claim that left room
	haltedRest      = 100 * time.Millisecond // after a claim from a lane that is halted, whoever wakes it
	firstFetchPause = 100 * time.Millisecond // after a failure
	maxFetchPause   = 5 * time.Second
)

// A lane is one of those that a worker takes work from.
type lane struct {
	name    id.LaneID
	claimer claimer
	woken   atomic.Bool          // somebody says that it has work
	looked  atomic.Pointer[bool] // somebody has looked whether it has work queued, new or not

	// The fetcher's own:
	due      bool // it may have work
	expected bool // because somebody said so
	taken    int  // executions claimed from it; the lane with the least comes first

	halt      engine.Halt // what its last claim met
	restUntil time.Time   // being halted
	resting   bool        // and woken since: the fetcher is roused when it has rested
}

// hear tells the fetcher what somebody else says.
func (r *run) hear(name id.LaneID) {
	r.heard.Add(1)
	r.tell(name)
}

// tell makes the fetcher look at a lane, or at all of them when none is named.
func (r *run) tell(name id.LaneID) {
	for _, l := range r.lanes {
		if name == "" || name == l.name {
			l.woken.Store(true)
			r.rouse()
		}
	}
}

// poll makes the fetcher look at lanes that have work queued: somebody has looked at all of them.
func (r *run) poll(queued []id.LaneID) {
	r.polledAt.Store(int64(time.Since(r.began)))
	for _, l := range r.lanes {
		l.looked.Store(new(slices.Contains(queued, l.name)))
	}
	if len(queued) > 0 {
		r.rouse()
	}
}

// rouse makes the fetcher look again at whether there is something to do.
func (r *run) rouse() {
	select {
	case r.roused <- struct{}{}:
	default:
	}
}

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
				f.cfg.Log.Warn("cannot claim; it is tried again", "error", err, "retry_in", pause)
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

func (f *fetcher) dueAll() {
	for _, l := range f.lanes {
		l.due = true
	}
}

// look asks, in one statement for all lanes, which of them have work queued, unless the background work of this process
// has done that. A lane without any is not claimed from, so that an idle worker hardly issues a statement.
func (f *fetcher) look(ctx context.Context) {
	if at := time.Duration(f.polledAt.Load()); at > 0 && time.Since(f.began)-at < 2*f.cfg.PollInterval {
		return
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	queued, err := f.settling.QueuedLanes(calling, f.laneNames)
	if err != nil {
		f.dueAll() // the claim says why
		return
	}
	for _, l := range f.lanes {
		f.learn(l, slices.Contains(queued, l.name))
	}
}

// learn takes note of whether a lane has work queued.
func (f *fetcher) learn(l *lane, queued bool) {
	if queued {
		l.due = true
	} else if !l.due {
		f.savesNothing(l)
	}
}

// savesNothing: an idle lane saves up no turns.
func (f *fetcher) savesNothing(l *lane) {
	for _, other := range f.lanes {
		l.taken = max(l.taken, other.taken)
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
	enough := limit - max(1, f.prefetch/2)
	f.refillAt.Store(int64(enough))
	if load := int(f.load.Load()); load <= enough && !f.aside.full() {
		return limit - load
	}
	return 0
}

func (f *fetcher) anyDue() bool {
	due := false
	for _, l := range f.lanes {
		if !f.rests(l) && l.woken.Swap(false) {
			l.claimer.Wake()
			l.due, l.expected = true, true
		}
		if queued := l.looked.Swap(nil); queued != nil {
			f.learn(l, *queued)
		}
		due = due || l.due
	}
	return due
}

// rests says whether a lane is left alone although it may have been woken. Who goes on creating work on a paused lane
// wakes it again and again, and who resumes it does not wake it in another way.
func (f *fetcher) rests(l *lane) bool {
	left := time.Until(l.restUntil)
	if l.halt == engine.NotHalted || left <= 0 {
		l.resting = false
		return false
	}
	if l.woken.Load() && !l.resting {
		l.resting = true
		time.AfterFunc(left, f.rouse)
	}
	return true
}

// heed notes what halts a lane, and says so once.
func (f *fetcher) heed(l *lane) {
	before := l.halt
	l.halt = l.claimer.Halted()
	l.restUntil, l.resting = time.Now().Add(haltedRest), false // a poll may claim in the midst of a rest
	switch {
	case l.halt == before:
	case l.halt == engine.LanePaused:
		f.cfg.Log.Info("lane is paused: nothing is claimed from it", "lane", l.name)
	case l.halt == engine.WorkerDrained && !f.saidDrained:
		f.saidDrained = true
		f.cfg.Log.Info("worker is drained: it claims nothing more", "instance", f.cfg.Instance)
	case l.halt != engine.NotHalted:
	case before == engine.LanePaused:
		f.cfg.Log.Info("lane is resumed", "lane", l.name)
	case f.saidDrained:
		f.saidDrained = false
		f.cfg.Log.Info("worker claims again", "instance", f.cfg.Instance)
	}
}

// claim gives each lane that may have work an equal share of the room; a share that is not filled is left for
// the next round.
func (f *fetcher) claim(ctx context.Context, room int) error {
	f.pace()
	due := slices.DeleteFunc(slices.Clone(f.lanes), func(l *lane) bool { return !l.due })
	slices.SortStableFunc(due, func(a, b *lane) int { return cmp.Compare(a.taken, b.taken) })
	for i, l := range due {
		sharing := len(due) - i
		n := min((room+sharing-1)/sharing, f.cfg.FetchBatch)
		if n == 0 {
			return nil
		}
		calledAt := time.Now()
		// Not ended by ctx: a claim that is broken off may have been committed, and its leases would have to run out.
		calling, cancel := context.WithTimeout(f.drained, callTimeout)
		claimed, err := f.take(calling, l, n)
		cancel()
		if err != nil {
			l.taken += n // the others first, should it be this lane that fails
			return err
		}
		f.heed(l)
		l.taken += len(claimed)
		if l.due = len(claimed) == n; !l.due {
			f.savesNothing(l)
		}
		f.unfilled = f.unfilled || l.expected && !l.due && l.halt == engine.NotHalted
		l.expected = false
		room -= len(claimed)
		f.hand(ctx, claimed, calledAt)
	}
	return nil
}

// gatherEnded takes what the handlers have ended meanwhile.
func (f *fetcher) gatherEnded() {
	before := len(f.ended)
	f.ended = f.settler.gather(f.ended)
	f.load.Add(int64(before - len(f.ended)))
}

// take claims from a lane, and completes in the same transaction what has succeeded.
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
	f.prefetch = min((f.prefetch+int(rate*float64(prefetchFor)))/2, maxQueued(f.cfg))
	f.paceAt, f.paceCount = now, finished
}

// maxQueued keeps the handlers busy during two claims.
func maxQueued(cfg Config) int { return 2 * cfg.FetchBatch }
