package upkeep

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/schedules"
)

// scheduleMemory is the state of the job run_schedules in this process. Instants are by the clock of the process, which
// only has to run, not to be right.
type scheduleMemory struct {
	mu   sync.Mutex
	next time.Time // when the next schedule is due

	wholeAt time.Time // when all schedules were looked at last
	boundMs int64     // all schedules due before were found then, by the database's clock

	waiting map[scheduleName]time.Time // schedules with ticks that wait for the last execution, and when last seen
}

type scheduleName struct{ namespace, name string }

const (
	// lockedSchedule is how long a due but locked schedule is left alone.
	lockedSchedule = 100 * time.Millisecond

	// wholePace is the time between two looks at all schedules. Looks in between start at a bound: while an old
	// snapshot is open, the index begins with an entry for each tick since. A change committed late, and due before the
	// bound, waits for the next look at all schedules.
	wholePace = time.Second

	// boundSlackMs is how far before the last look at all schedules the bound is.
	boundSlackMs = 60_000

	// maxWaitingTicks is the number of waiting ticks watched by a process. Others are checked from time to time.
	maxWaitingTicks = 1000
)

// begin returns where a call starts, and which schedules to hasten.
func (m *scheduleMemory) begin(now time.Time) (fromMs int64, waiting []scheduleName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.wholeAt) < wholePace {
		fromMs = m.boundMs
	}
	// A process checks a waiting tick every ten seconds, unless another process does, or the schedule was paused or
	// deleted.
	maps.DeleteFunc(m.waiting, func(_ scheduleName, seen time.Time) bool { return now.Sub(seen) > 2*schedules.MaxQueuePoll })
	waiting = slices.SortedFunc(maps.Keys(m.waiting), func(a, b scheduleName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return fromMs, waiting
}

// end notes the result of a call. more: there may be more due schedules.
func (m *scheduleMemory) end(run *scheduleRun, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch wait := time.Duration(run.nextMs-run.nowMs) * time.Millisecond; {
	case more:
		m.next = time.Now()
	case run.nextMs == 0:
		m.next = time.Time{}
	case wait <= 0:
		m.next = time.Now().Add(lockedSchedule)
	default:
		m.next = time.Now().Add(wait)
	}
	if run.fromMs == 0 && !more {
		m.wholeAt, m.boundMs = run.looked, max(0, run.nowMs-boundSlackMs)
	}
	m.boundMs = min(m.boundMs, run.nextMs) // one that catches up, or none
	for i := range run.rows {
		name := scheduleName{run.rows[i].Namespace, run.rows[i].Name}
		if core.Deref(run.rows[i].QueuedMs) == 0 {
			delete(m.waiting, name)
		} else if len(m.waiting) < maxWaitingTicks {
			if m.waiting == nil {
				m.waiting = make(map[scheduleName]time.Time)
			}
			m.waiting[name] = run.looked
		}
	}
}

// NextSchedule returns when the next schedule is due, as far as the job run_schedules of this engine knows, as an
// instant of this process; zero if there is none. A schedule changed since may be due sooner: see [Upkeep.Rescheduled].
func (u *Upkeep) NextSchedule() time.Time {
	u.schedules.mu.Lock()
	defer u.schedules.mu.Unlock()
	return u.schedules.next
}

// Rescheduled receives a value when this engine has added or changed a schedule. Then call the job run_schedules soon.
func (u *Upkeep) Rescheduled() <-chan struct{} { return u.c.Rescheduled }

// OnRescheduled calls a function when any process has added or changed a schedule, until stop is called: for this
// process at once, for others while a call of [engine.Engine.Listen] has a connection. It opens none itself. The
// function must not block; nil is never called.
func (u *Upkeep) OnRescheduled(wake func()) (stop func()) {
	return u.c.OnNotification(core.ScheduleChannel, false, wake) // after a new connection the next question to the database finds earlier changes
}

// TicksWait reports whether a tick waits for the end of an execution, as far as the job run_schedules of this engine
// knows. While a tick waits, call the job when [Upkeep.OnEnded] reports an end.
func (u *Upkeep) TicksWait() bool {
	u.schedules.mu.Lock()
	defer u.schedules.mu.Unlock()
	return len(u.schedules.waiting) > 0
}

// OnEnded calls a function when executions have ended, until stop is called: in this process at once, in others as with
// [Upkeep.OnRescheduled]. The function must not block; nil is never called.
func (u *Upkeep) OnEnded(wake func()) (stop func()) {
	return u.c.OnNotification(core.CompletionChannel, true, wake)
}
