package worker

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// lane is a lane to claim from: all its kinds, or one kind with a limit.
type lane struct {
	name    id.LaneID
	kinds   []string // to claim
	claimer claimer
	slots   limits               // of the kind and of the lane, if any
	again   bool                 // another one has the same name, and logs the pauses
	woken   atomic.Bool          // a notification reports work
	started atomic.Int64         // executions claimed
	looked  atomic.Pointer[bool] // result of the last poll by another goroutine, if not yet used: whether work is queued

	// Fields of the fetcher's goroutine:
	due      bool // there may be work
	expected bool // due because of a notification
	taken    int  // executions claimed; the lane with the fewest comes first

	halt      state.Halt // why the last claim took nothing, if halted
	restUntil time.Time  // when a halted lane may be claimed from again
	resting   bool       // notified during the rest; a timer wakes the fetcher at the end
}

// onNotification passes a notification to the fetcher.
func (r *run) onNotification(name id.LaneID) {
	r.notified.Add(1)
	r.wakeLane(name)
}

// wakeLane notifies the fetcher of a lane, or of all lanes if name is empty.
func (r *run) wakeLane(name id.LaneID) {
	for _, l := range r.lanes {
		if name == "" || name == l.name {
			l.woken.Store(true)
			r.wakeFetcher()
		}
	}
}

// poll passes the result of a poll by the background work to the fetcher: the lanes with work queued.
func (r *run) poll(queued []id.LaneID) {
	r.polledAt.Store(int64(time.Since(r.began)))
	r.answered(nil)
	for _, l := range r.lanes {
		l.looked.Store(new(slices.Contains(queued, l.name)))
	}
	if len(queued) > 0 {
		r.wakeFetcher()
	}
}

// wakeFetcher makes the fetcher check again for work and capacity.
func (r *run) wakeFetcher() {
	select {
	case r.recheck <- struct{}{}:
	default:
	}
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
		due = due || l.due && !l.slots.full()
	}
	return due
}

// rests reports whether to skip a halted lane despite notifications. Creating work on a paused lane notifies again and
// again, and so does resuming the lane.
func (f *fetcher) rests(l *lane) bool {
	left := time.Until(l.restUntil)
	if l.halt == state.NotHalted || left <= 0 {
		l.resting = false
		return false
	}
	if l.woken.Load() && !l.resting {
		l.resting = true
		time.AfterFunc(left, f.wakeFetcher)
	}
	return true
}

// noteAnswer records whether a lane is halted, and logs each change once.
func (f *fetcher) noteAnswer(l *lane) {
	f.answers.Add(1)
	before := l.halt
	l.halt = l.claimer.Halted()
	l.restUntil, l.resting = time.Now().Add(haltedRest), false // a poll may claim during a rest
	switch {
	case l.halt == before, l.again:
	case l.halt == state.HaltedLane:
		f.cfg.Log.Info("lane is paused: nothing is claimed from it", "lane", l.name)
	case l.halt == state.HaltedWorker:
		f.noteDrained(true)
	case l.halt != state.NotHalted:
	case before == state.HaltedLane:
		f.cfg.Log.Info("lane is resumed", "lane", l.name)
	default:
		f.noteDrained(false)
	}
}

func (f *fetcher) dueAll() {
	for _, l := range f.lanes {
		l.due = true
	}
}

// look polls all lanes for queued work in one statement, unless the process's background work has done so. Only lanes
// with work are claimed from, so an idle worker sends hardly any statements.
func (f *fetcher) look(ctx context.Context) {
	if at := time.Duration(f.polledAt.Load()); at > 0 && time.Since(f.began)-at < 2*f.cfg.PollInterval {
		return
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	queued, err := f.settling.QueuedLanes(calling, f.laneNames)
	if ctx.Err() == nil {
		f.answered(err)
	}
	if err != nil {
		f.dueAll() // the claim will report the error
		return
	}
	for _, l := range f.lanes {
		f.learn(l, slices.Contains(queued, l.name))
	}
}

// learn records whether a lane has work queued.
func (f *fetcher) learn(l *lane, queued bool) {
	if queued {
		l.due = true
	} else if !l.due {
		f.savesNothing(l)
	}
}

// savesNothing moves an idle lane's count up to the others', so the lane gets no credit for idle time.
func (f *fetcher) savesNothing(l *lane) {
	for _, other := range f.lanes {
		l.taken = max(l.taken, other.taken)
	}
}
