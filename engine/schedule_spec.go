package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/cron"
)

// Limits of schedules.
const (
	MaxScheduleName   = 255                  // bytes of a name, and of the name of a set
	MaxScheduleJitter = time.Hour            // the longest [ScheduleSpec.Jitter]
	MinScheduleEvery  = time.Second          // the shortest interval
	MaxScheduleEvery  = 366 * 24 * time.Hour // the longest
)

// Tags of the executions of a schedule.
const (
	ScheduleTag     = "ffx.schedule"      // its name
	ScheduledForTag = "ffx.scheduled_for" // the time of the tick in RFC 3339, in UTC
)

// Missed decides about ticks that are late because no process ran, or all were busy.
type Missed string

const (
	// MissedLast creates the last one, however late it is. It is the default.
	MissedLast Missed = "last"

	// MissedNone creates none that is later than [MissedGrace].
	MissedNone Missed = "none"

	// MissedAll creates all that are not later than [ScheduleSpec.Window].
	MissedAll Missed = "all"
)

// MissedGrace is how late a tick may be that [MissedNone] still creates, which is the last one at most: a process that
// takes over from another one needs up to five seconds.
const MissedGrace = 30 * time.Second

// Overlap decides about a tick that comes before the last execution of the schedule has ended.
type Overlap string

const (
	// OverlapAllow creates another one. It is the default.
	OverlapAllow Overlap = "allow"

	// OverlapSkip creates none.
	OverlapSkip Overlap = "skip"

	// OverlapQueue creates it after the end of the last one, which is noticed at once, or without a listener within ten
	// seconds. One tick waits at most; those that come meanwhile are skipped.
	OverlapQueue Overlap = "queue"

	// OverlapCancel cancels the last one, as [Engine.CancelExecution] does, and creates another. Of several late ticks only
	// the last one is created.
	OverlapCancel Overlap = "cancel"
)

// ScheduleSpec describes a schedule: its times, and the execution to create at each. Set Name, Execution.Kind, and one of Cron
// and Every.
type ScheduleSpec struct {
	Name      string       // unique in its namespace; at most [MaxScheduleName] bytes
	Namespace id.Namespace // of the schedule and its executions; default: the engine's

	// Cron is an expression of five fields: minute, hour, day of the month, month, day of the week; of six with seconds
	// first; or @hourly, @daily, @weekly, @monthly or @yearly. Zone is the IANA name of its time zone, as "Europe/Berlin";
	// default UTC.
	Cron string
	Zone string

	// Every is an interval of whole milliseconds, from [MinScheduleEvery] to [MaxScheduleEvery]. It counts from Start, or
	// without one from the Unix epoch: a process that starts later doesn't shift it.
	Every time.Duration

	// Jitter delays each tick by up to this long, at most [MaxScheduleJitter]. A tick's delay depends on the schedule and
	// the tick alone. Default 0.
	Jitter time.Duration

	// Start and End limit the ticks, both inclusive. Zero: no limit.
	Start time.Time
	End   time.Time

	Missed  Missed        // default [MissedLast]
	Window  time.Duration // how late a tick may be created; with [MissedAll] alone, which requires it
	Overlap Overlap       // default [OverlapAllow]

	// Execution is created at each tick, with the tags [ScheduleTag] and [ScheduledForTag]. It has no id, flow or key, and
	// no instants; its policy may have a deadline.
	Execution ExecutionSpec
}

// checkSchedule fills in defaults and refuses mistakes. It returns the times of the schedule and the checked execution.
func (e *Engine) checkSchedule(s *ScheduleSpec) (t tickTimes, c creation, err error) {
	if s.Name == "" {
		return t, c, core.Invalid("Name", "is empty")
	}
	if err := core.CheckText("Name", s.Name, MaxScheduleName); err != nil {
		return t, c, err
	}
	if s.Namespace, err = e.c.NamespaceOr(cmp.Or(s.Namespace, s.Execution.Namespace)); err != nil {
		return t, c, err
	}
	s.Missed, s.Overlap = cmp.Or(s.Missed, MissedLast), cmp.Or(s.Overlap, OverlapAllow)
	if err := s.checkRules(); err != nil {
		return t, c, err
	}
	if t, err = s.times(); err != nil {
		return t, c, err
	}
	x := &s.Execution
	switch {
	case x.Namespace != "" && x.Namespace != s.Namespace:
		return t, c, core.Invalid("Execution.Namespace", "is another one than the schedule's")
	case !x.ID.IsZero() || x.Flow != nil || x.IdempotencyKey != "" || !x.BusinessKey.IsZero():
		return t, c, core.Invalid("Execution", "has an id, a flow or a key, but each tick creates a new execution outside flows")
	case x.after > 0 || !x.DelayUntil.IsZero() || !x.Deadline.IsZero() || !x.CreatedAt.IsZero():
		return t, c, core.Invalid("Execution", "has an instant, but it is created at each tick: a deadline belongs to the policy")
	case x.Tags[ScheduleTag] != "" || x.Tags[ScheduledForTag] != "":
		return t, c, core.Invalid("Execution.Tags", "has a tag that the tick sets")
	}
	x.Namespace = s.Namespace
	if c, err = e.prepare(*x); err == nil && x.Unique != nil {
		err = new(uniqueKeyer).setUnique(&c, x.Unique, 0) // a wrong field fails now
	}
	return t, c, err
}

// checkRules checks the parts of a spec that are not about its execution.
func (s *ScheduleSpec) checkRules() error {
	switch {
	case (s.Cron == "") == (s.Every == 0):
		return core.Invalid("Cron", "and Every: set one of them")
	case s.Every != 0 && (s.Every < MinScheduleEvery || s.Every > MaxScheduleEvery || s.Every%time.Millisecond != 0):
		return core.Invalid("Every", fmt.Sprintf("%v, not whole milliseconds from %v to %v", s.Every, MinScheduleEvery, MaxScheduleEvery))
	case s.Every != 0 && s.Zone != "":
		return core.Invalid("Zone", "has no effect on an interval: leave it out")
	case s.Jitter < 0 || s.Jitter > MaxScheduleJitter:
		return core.Invalid("Jitter", fmt.Sprintf("%v, not between 0 and %v", s.Jitter, MaxScheduleJitter))
	case s.Missed != MissedLast && s.Missed != MissedNone && s.Missed != MissedAll:
		return core.Invalid("Missed", fmt.Sprintf("%q is unknown", s.Missed))
	case s.Missed == MissedAll && s.Window < time.Millisecond:
		return core.Invalid("Window", "must be positive with MissedAll")
	case s.Missed != MissedAll && s.Window != 0:
		return core.Invalid("Window", "has no effect without MissedAll: leave it out")
	case s.Overlap != OverlapAllow && s.Overlap != OverlapSkip && s.Overlap != OverlapQueue && s.Overlap != OverlapCancel:
		return core.Invalid("Overlap", fmt.Sprintf("%q is unknown", s.Overlap))
	case !s.Start.IsZero() && !s.End.IsZero() && s.End.Before(s.Start):
		return core.Invalid("End", "is before Start")
	}
	return nil
}

// times returns the times of a checked spec.
func (s *ScheduleSpec) times() (t tickTimes, err error) {
	t = tickTimes{namespace: string(s.Namespace), name: s.Name, jitterMs: s.Jitter.Milliseconds()}
	if t.startMs, err = core.Instant("Start", s.Start); err != nil {
		return t, err
	}
	if t.endMs, err = core.Instant("End", s.End); err != nil {
		return t, err
	}
	t.schedule, err = scheduleOf(s.Cron, s.Zone, s.Every.Milliseconds(), t.startMs)
	return t, err
}

func scheduleOf(expression, zone string, everyMs, startMs int64) (cron.Schedule, error) {
	if everyMs > 0 {
		return cron.Every(time.Duration(everyMs)*time.Millisecond, time.UnixMilli(startMs)), nil
	}
	schedule, err := cron.Parse(expression, zone)
	if err != nil {
		return schedule, core.InvalidBecause("Cron", err)
	}
	return schedule, nil
}

// tagsOf renders tags as they are stored.
func tagsOf(tags map[string]string) (string, error) {
	if len(tags) == 0 {
		return "{}", nil
	}
	document, err := json.Marshal(tags)
	return string(document), err
}

// ScheduleName identifies a schedule.
type ScheduleName struct {
	Namespace id.Namespace // default: the engine's
	Name      string
}

func (n *ScheduleName) check(e *Engine) (err error) {
	if n.Namespace, err = e.c.NamespaceOr(n.Namespace); err != nil {
		return err
	}
	if n.Name == "" {
		return core.Invalid("Name", "is empty")
	}
	return core.CheckText("Name", n.Name, MaxScheduleName)
}

func (n *ScheduleName) notFound() error { return &fferr.NotFoundError{Entity: "schedule", ID: n.Name} }

func (n *ScheduleName) orNotFound(err error) error {
	if core.IsNoRow(err) {
		return n.notFound()
	}
	return err
}
