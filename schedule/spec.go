package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/schedules"
)

// Limits of schedules.
const (
	MaxName   = 255                  // bytes of a name, and of the name of a set
	MaxJitter = time.Hour            // the longest [Spec.Jitter]
	MinEvery  = time.Second          // the shortest interval
	MaxEvery  = 366 * 24 * time.Hour // the longest
)

// Tags of the executions of a schedule.
const (
	Tag     = schedules.Tag     // the schedule's name
	TimeTag = schedules.TimeTag // the time of the tick in RFC 3339, in UTC
)

// Missed decides about ticks that are late because no process ran, or all were busy.
type Missed string

const (
	// MissedLast creates the last tick, however late. It is the default.
	MissedLast Missed = "last"

	// MissedNone creates no tick later than [MissedGrace].
	MissedNone Missed = "none"

	// MissedAll creates all ticks not later than [Spec.Window].
	MissedAll Missed = "all"
)

// MissedGrace is how late a tick may be under [MissedNone], which creates the last one at most: a process replacing another
// one needs up to five seconds.
const MissedGrace = schedules.MissedGrace

// Overlap decides about a tick before the end of the schedule's last execution.
type Overlap string

const (
	// OverlapAllow creates another execution. It is the default.
	OverlapAllow Overlap = "allow"

	// OverlapSkip creates none.
	OverlapSkip Overlap = "skip"

	// OverlapQueue creates the execution after the end of the last one, at once, or without a listener within ten seconds. At
	// most one tick waits; ticks in the meantime are skipped.
	OverlapQueue Overlap = "queue"

	// OverlapCancel cancels the last execution, as [engine.Engine.CancelExecution] does, and creates another. Of several late
	// ticks only the last is created.
	OverlapCancel Overlap = "cancel"
)

// Spec describes a schedule: the times, and the execution for each. Set Name, Execution.Kind, and one of Cron and Every.
type Spec struct {
	Name      string       // unique in the namespace; at most [MaxName] bytes
	Namespace id.Namespace // of the schedule and its executions; default: the engine's

	// Cron is an expression of five fields: minute, hour, day of the month, month, day of the week; of six with seconds
	// first; or @hourly, @daily, @weekly, @monthly or @yearly. Zone is the IANA name of the time zone, as "Europe/Berlin";
	// default UTC.
	Cron string
	Zone string

	// Every is an interval in whole milliseconds, from [MinEvery] to [MaxEvery]. It counts from Start, or without one from
	// the Unix epoch, so restarts don't shift the ticks.
	Every time.Duration

	// Jitter delays each tick by up to this long, at most [MaxJitter]. A tick's delay depends only on the schedule and the
	// tick. Default 0.
	Jitter time.Duration

	// Start and End limit the ticks, both inclusive. Zero: no limit.
	Start time.Time
	End   time.Time

	Missed  Missed        // default [MissedLast]
	Window  time.Duration // how late a tick may be created; only with [MissedAll], which requires a Window
	Overlap Overlap       // default [OverlapAllow]

	// Execution is created at each tick, with the tags [Tag] and [TimeTag]. It has no id, flow, key or instants. A policy may
	// have a deadline.
	Execution engine.ExecutionSpec
}

// Of returns the spec of a schedule of a kind, for [Declare] or [Put].
//
// From the execution in spec only the namespace, tags, priority and creator are used; tags are added to the tags of
// [engine.Kind.Options]. If args can't be encoded, the schedule is refused with [fferr.ErrInvalidInput].
func Of[In, Out any](kind engine.Kind[In, Out], name string, args In, spec Spec) Spec {
	own := spec.Execution
	spec.Name, spec.Execution = name, kind.Spec(args)
	x := &spec.Execution
	x.Namespace, x.Creator = own.Namespace, own.Creator
	x.Priority = cmp.Or(own.Priority, x.Priority)
	for key, value := range own.Tags {
		engine.WithTag(key, value)(x)
	}
	return spec
}

// check fills in defaults and refuses mistakes. It returns the times of the schedule and the stored form of the executions.
func (s *Spec) check(c *core.Core) (times schedules.Times, t core.Template, err error) {
	if s.Name == "" {
		return times, t, core.Invalid("Name", "is empty")
	}
	if err := core.CheckText("Name", s.Name, MaxName); err != nil {
		return times, t, err
	}
	if s.Namespace, err = c.NamespaceOr(cmp.Or(s.Namespace, s.Execution.Namespace)); err != nil {
		return times, t, err
	}
	s.Missed, s.Overlap = cmp.Or(s.Missed, MissedLast), cmp.Or(s.Overlap, OverlapAllow)
	if err := s.checkRules(); err != nil {
		return times, t, err
	}
	if times, err = s.times(); err != nil {
		return times, t, err
	}
	x := &s.Execution
	switch {
	case x.Namespace != "" && x.Namespace != s.Namespace:
		return times, t, core.Invalid("Execution.Namespace", "is another one than the schedule's")
	case x.Tags[Tag] != "" || x.Tags[TimeTag] != "":
		return times, t, core.Invalid("Execution.Tags", "has a tag that the tick sets")
	}
	x.Namespace = s.Namespace
	t, err = core.CreatorOf[engine.ExecutionSpec](c).Template(*x)
	return times, t, err
}

// checkRules checks a spec apart from the execution.
func (s *Spec) checkRules() error {
	switch {
	case (s.Cron == "") == (s.Every == 0):
		return core.Invalid("Cron", "and Every: set one of them")
	case s.Every != 0 && (s.Every < MinEvery || s.Every > MaxEvery || s.Every%time.Millisecond != 0):
		return core.Invalid("Every", fmt.Sprintf("%v, not whole milliseconds from %v to %v", s.Every, MinEvery, MaxEvery))
	case s.Every != 0 && s.Zone != "":
		return core.Invalid("Zone", "has no effect on an interval: leave it out")
	case s.Jitter < 0 || s.Jitter > MaxJitter:
		return core.Invalid("Jitter", fmt.Sprintf("%v, not between 0 and %v", s.Jitter, MaxJitter))
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
func (s *Spec) times() (t schedules.Times, err error) {
	startMs, err := core.Instant("Start", s.Start)
	if err != nil {
		return t, err
	}
	endMs, err := core.Instant("End", s.End)
	if err != nil {
		return t, err
	}
	key := schedules.Key{Cron: s.Cron, Zone: s.Zone, EveryMs: s.Every.Milliseconds(), StartMs: startMs}
	return schedules.New(string(s.Namespace), s.Name, key, endMs, s.Jitter.Milliseconds())
}

// tagsOf renders tags for storage.
func tagsOf(tags map[string]string) (string, error) {
	if len(tags) == 0 {
		return "{}", nil
	}
	document, err := json.Marshal(tags)
	return string(document), err
}

// Name identifies a schedule.
type Name struct {
	Namespace id.Namespace // default: the engine's
	Name      string
}

func (n *Name) check(c *core.Core) (err error) {
	if n.Namespace, err = c.NamespaceOr(n.Namespace); err != nil {
		return err
	}
	if n.Name == "" {
		return core.Invalid("Name", "is empty")
	}
	return core.CheckText("Name", n.Name, MaxName)
}

func (n *Name) notFound() error { return &fferr.NotFoundError{Entity: "schedule", ID: n.Name} }

func (n *Name) orNotFound(err error) error {
	if core.IsNoRow(err) {
		return n.notFound()
	}
	return err
}
