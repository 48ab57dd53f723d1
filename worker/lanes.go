package worker

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
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
