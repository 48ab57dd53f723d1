package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// MaxSchedules is the largest number of schedules in a [ScheduleSet].
const MaxSchedules = 1000

// ScheduleSet are the schedules that a program declares in its code.
type ScheduleSet struct {
	Name      string       // identifies the set in its namespace; at most [MaxScheduleName] bytes
	Namespace id.Namespace // of the set and its schedules; default: the engine's
	Schedules []ScheduleSpec

	// Vanished decides about schedules that the set declared before. Required.
	Vanished Vanished
}

// Vanished decides about a schedule that its set no longer declares.
type Vanished string

const (
	// RemoveVanished deletes it. Its executions stay.
	RemoveVanished Vanished = "remove"

	// PauseVanished pauses it. It is resumed by [Operator.ResumeSchedule] alone.
	PauseVanished Vanished = "pause"
)

// Declared is the result of [Operator.DeclareSchedules].
type Declared struct {
	Vanished []string // the names of the schedules that were removed or paused, sorted
}

// SetSchedule creates a schedule, or changes the one of this name. If its times have not changed, its next tick stays;
// otherwise the next tick is the first one from now on. A paused schedule stays paused. A schedule that a set declares leaves
// the set: declare it in one place.
//
// Errors: [ErrInvalidInput] naming the field; [ErrContention]. Transaction: locks the schedule, after registering a lane that
// is new. In a caller's transaction the change is effective with its commit. Safe to repeat.
func (o Operator) SetSchedule(ctx context.Context, spec ScheduleSpec) error {
	const op = "set schedule"
	puts := schedulePuts{Engine: o.e}
	if err := puts.add(spec, ""); err != nil {
		return wrap(op, err)
	}
	_, err := inTx(ctx, o.e, op, func(tx *txn) (struct{}, error) { return struct{}{}, puts.put(ctx, tx) })
	return err
}

// DeclareSchedules makes the schedules of a set those that a program declares, when it starts: new ones are created, changed
// ones are changed as by [Operator.SetSchedule], and those that it no longer declares are removed or paused, as the set says.
// Any number of processes may call it at once. While two versions of a program run side by side, the last call counts: call
// it when a process starts, not again and again.
//
// Errors: [ErrInvalidInput] naming the field; [ErrContention]. Transaction: a constant number of statements; locks the
// schedules of the set in the order of their names. Safe to repeat: unchanged schedules are not written.
func (o Operator) DeclareSchedules(ctx context.Context, set ScheduleSet) (Declared, error) {
	const op = "declare schedules"
	e := o.e
	puts := schedulePuts{Engine: e}
	if err := puts.addSet(&set); err != nil {
		return Declared{}, wrap(op, err)
	}
	return inTx(ctx, e, op, func(tx *txn) (Declared, error) {
		names := slices.Clone(puts.params.Names)
		known, err := e.q.LockDeclaredSchedules(ctx, tx, db.LockDeclaredSchedulesParams{
			Namespace: string(set.Namespace), DeclaredBy: set.Name, Names: names,
		})
		if err != nil {
			return Declared{}, err
		}
		var gone Declared
		for _, row := range known {
			if _, still := slices.BinarySearch(names, row.Name); row.Declared && !still {
				gone.Vanished = append(gone.Vanished, row.Name)
			}
		}
		if err := puts.put(ctx, tx); err != nil || len(gone.Vanished) == 0 {
			return gone, err
		}
		if set.Vanished == PauseVanished {
			_, err = e.q.PauseSchedules(ctx, tx, db.PauseSchedulesParams{
				Namespace: string(set.Namespace), Names: gone.Vanished, NowMs: e.nowMs(), Reason: "no longer declared by " + set.Name,
			})
		} else {
			_, err = e.q.DropSchedules(ctx, tx, db.DropSchedulesParams{Namespace: string(set.Namespace), Names: gone.Vanished})
		}
		return gone, err
	})
}

// DeleteSchedule deletes a schedule. Its executions stay.
//
// Errors: [ErrNotFound]; [ErrInvalidInput]; [ErrContention]. Transaction: one statement; locks the schedule.
func (o Operator) DeleteSchedule(ctx context.Context, schedule ScheduleName) error {
	const op = "delete schedule"
	e := o.e
	if err := schedule.check(e); err != nil {
		return wrap(op, err)
	}
	n, err := inStatement(ctx, e, op, func(conn db.DBTX, _ *notifications) (int64, error) {
		return e.q.DropSchedules(ctx, conn, db.DropSchedulesParams{Namespace: string(schedule.Namespace), Names: []string{schedule.Name}})
	})
	if err == nil && n == 0 {
		err = wrap(op, schedule.notFound())
	}
	return err
}

// schedulePuts are schedules to create or change, in the order of their names.
type schedulePuts struct {
	*Engine
	params    db.PutSchedulesParams
	times     []tickTimes
	creations []creation
}

// addSet checks a set, fills in its defaults, and adds its schedules.
func (p *schedulePuts) addSet(set *ScheduleSet) (err error) {
	if set.Namespace, err = p.namespace(set.Namespace); err != nil {
		return err
	}
	switch {
	case set.Name == "":
		return invalid("Name", "is empty")
	case set.Vanished != RemoveVanished && set.Vanished != PauseVanished:
		return invalid("Vanished", fmt.Sprintf("%q is neither RemoveVanished nor PauseVanished", set.Vanished))
	case len(set.Schedules) > MaxSchedules:
		return invalid("Schedules", fmt.Sprintf("are %d, limit %d", len(set.Schedules), MaxSchedules))
	}
	if err := checkText("Name", set.Name, MaxScheduleName); err != nil {
		return err
	}
	p.params.Namespace, p.params.DeclaredBy = string(set.Namespace), set.Name
	sorted := slices.SortedFunc(slices.Values(set.Schedules), func(a, b ScheduleSpec) int { return cmp.Compare(a.Name, b.Name) })
	for i, spec := range sorted {
		if i > 0 && spec.Name == sorted[i-1].Name {
			return invalid("Schedules", fmt.Sprintf("declare %q twice", spec.Name))
		}
		spec.Namespace = cmp.Or(spec.Namespace, spec.Execution.Namespace, set.Namespace)
		if spec.Namespace != set.Namespace {
			return invalid("Schedules", fmt.Sprintf("%q is of another namespace than the set", spec.Name))
		}
		if err := p.add(spec, set.Name); err != nil {
			return fmt.Errorf("schedule %q: %w", spec.Name, err)
		}
	}
	return nil
}

// add checks a schedule and adds it.
func (p *schedulePuts) add(s ScheduleSpec, set string) error {
	times, c, err := p.checkSchedule(&s)
	if err != nil {
		return err
	}
	stored, err := scheduledTags(&s.Execution)
	if err != nil {
		return err
	}
	tags, err := tagsOf(stored)
	if err != nil {
		return invalidBecause("Execution.Tags", err)
	}
	p.times, p.creations = append(p.times, times), append(p.creations, c)
	a := &p.params
	a.Namespace, a.DeclaredBy = string(s.Namespace), set
	a.Names = append(a.Names, s.Name)
	a.Crons, a.TimeZones, a.EverysMs = append(a.Crons, s.Cron), append(a.TimeZones, s.Zone), append(a.EverysMs, s.Every.Milliseconds())
	a.JittersMs, a.StartsMs, a.EndsMs = append(a.JittersMs, times.jitterMs), append(a.StartsMs, times.startMs), append(a.EndsMs, times.endMs)
	a.Missed, a.WindowsMs = append(a.Missed, string(s.Missed)), append(a.WindowsMs, s.Window.Milliseconds())
	a.OverlapRules = append(a.OverlapRules, string(s.Overlap))
	a.Kinds, a.LaneIDs = append(a.Kinds, c.kind), append(a.LaneIDs, c.lane)
	a.Payloads, a.PayloadEncodings = append(a.Payloads, c.payload), append(a.PayloadEncodings, c.encoding)
	a.Priorities, a.Creators = append(a.Priorities, c.priority), append(a.Creators, s.Execution.Creator)
	a.Policies, a.Tags = append(a.Policies, c.policy), append(a.Tags, tags)
	return nil
}

// put writes the schedules, with their next ticks from now on. Their lanes are registered now, so that no tick has to wait for
// another transaction that registers the same one.
func (p *schedulePuts) put(ctx context.Context, tx *txn) error {
	if len(p.times) == 0 {
		return nil
	}
	now, err := p.q.GetNow(ctx, tx, p.nowMs())
	if err != nil {
		return err
	}
	p.params.NowMs, p.params.NextsMs, p.params.TicksMs = now, nil, nil
	for i := range p.times {
		tick := p.times[i].next(now)
		p.params.TicksMs = append(p.params.TicksMs, tick)
		p.params.NextsMs = append(p.params.NextsMs, p.times[i].due(tick))
	}
	if err := p.q.PutSchedules(ctx, tx, p.params); err != nil {
		return err
	}
	tx.due.rescheduled()
	return p.register(ctx, tx, p.unknownLanes(p.creations), p.periods.missing(p.creations))
}

// scheduleMemory is what the calls of [Maintenance.RunSchedules] of this process know from one to the next. Instants are by the
// clock of this process, which only has to run, not to be right.
type scheduleMemory struct {
	mu   sync.Mutex
	next time.Time // when the next schedule is due

	wholeAt time.Time // when all schedules were looked at last
	boundMs int64     // schedules that are due before were found then, by the database's clock

	waiting map[ScheduleName]time.Time // whose ticks wait for the last execution, and when that was seen last
}

const (
	// lockedSchedule is how long a call leaves a schedule alone that was due and locked.
	lockedSchedule = 100 * time.Millisecond

	// wholePace is the time between two looks at all schedules. Those in between start late: while an old snapshot is open, the
	// index begins with an entry for each tick since. A change that is committed late, and is due before the bound, waits for
	// the next look at all.
	wholePace = time.Second

	// boundSlackMs is how far before the last look at all schedules the others start.
	boundSlackMs = 60_000

	// maxWaitingTicks is the number of waiting ticks that a process watches. Others are looked at from time to time.
	maxWaitingTicks = 1000
)

// begin returns where a call starts, and which schedules to hasten.
func (m *scheduleMemory) begin(now time.Time) (fromMs int64, waiting []ScheduleName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.wholeAt) < wholePace {
		fromMs = m.boundMs
	}
	// This process looks at a waiting tick every ten seconds, unless another one does, or the schedule was paused or deleted.
	maps.DeleteFunc(m.waiting, func(_ ScheduleName, seen time.Time) bool { return now.Sub(seen) > 2*maxQueuePoll })
	waiting = slices.SortedFunc(maps.Keys(m.waiting), func(a, b ScheduleName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
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
		name := ScheduleName{Namespace: id.Namespace(run.rows[i].Namespace), Name: run.rows[i].Name}
		if deref(run.rows[i].QueuedMs) == 0 {
			delete(m.waiting, name)
		} else if len(m.waiting) < maxWaitingTicks {
			if m.waiting == nil {
				m.waiting = make(map[ScheduleName]time.Time)
			}
			m.waiting[name] = run.looked
		}
	}
}

// NextSchedule returns when the first schedule is due that [Maintenance.RunSchedules] of this engine has left, as an instant of
// this process; zero if there is none. A schedule that was changed since may be due sooner: see [Maintenance.Rescheduled].
func (m Maintenance) NextSchedule() time.Time {
	m.e.schedules.mu.Lock()
	defer m.e.schedules.mu.Unlock()
	return m.e.schedules.next
}

// Rescheduled receives a value when this engine has added or changed a schedule. Then call [Maintenance.RunSchedules] soon.
func (m Maintenance) Rescheduled() <-chan struct{} { return m.e.rescheduled }

// OnRescheduled calls wake when any process has added or changed a schedule, until stop is called: this process at once,
// others while a call of [Engine.Listen] has a connection. It opens none itself. wake must not block.
func (m Maintenance) OnRescheduled(wake func()) (stop func()) {
	return m.e.listener.Join(scheduleChannel, func(payload string) {
		if payload != "" { // a new connection: the next question to the database finds what came before it
			wake()
		}
	})
}

// TicksWait reports whether a tick waits for the end of an execution, as far as [Maintenance.RunSchedules] of this engine knows.
// While it does, call that when [Maintenance.OnEnded] reports an end.
func (m Maintenance) TicksWait() bool {
	m.e.schedules.mu.Lock()
	defer m.e.schedules.mu.Unlock()
	return len(m.e.schedules.waiting) > 0
}

// OnEnded calls wake when executions have ended, until stop is called: in this process at once, in others as with
// [Maintenance.OnRescheduled]. wake must not block.
func (m Maintenance) OnEnded(wake func()) (stop func()) {
	return m.e.listener.Join(completionChannel, func(string) { wake() })
}
