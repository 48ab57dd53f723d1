package schedule

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/schedules"
)

// MaxRecent is the largest number of outcomes in [State.Recent].
const MaxRecent = schedules.MaxRecent

// MaxUpcoming is the largest number of ticks computed by [Describe].
const MaxUpcoming = 1000

// State is a stored schedule with its last and next ticks.
type State struct {
	Name      string
	Namespace id.Namespace
	Set       string // the declaring [Set]; "" if there is none

	Cron    string // "" with an interval
	Zone    string // of Cron; "" for UTC
	Every   time.Duration
	Jitter  time.Duration
	Start   time.Time // zero: no limit
	End     time.Time // zero: no limit
	Missed  Missed
	Window  time.Duration // of [MissedAll]; 0 otherwise
	Overlap Overlap

	Kind     string
	Lane     id.LaneID
	Priority int
	Tags     map[string]string // without the tags of the tick
	Unique   *engine.Unique    // nil: the executions are not unique
	Sequence engine.Sequence   // of the executions; zero: none
	Limits   []engine.LimitKey // of the executions; nil: none
	Fair     engine.FairShare  // of the executions; zero: none

	Budgets     []id.BudgetID     // of the executions, sorted; nil: none
	QuotaPolicy *id.QuotaPolicyID // of the executions; nil: none

	Next        time.Time // the time of the next tick, without jitter; zero: none follows, or the schedule is paused
	Queued      time.Time // the time of a tick waiting for the last execution; zero: none
	PausedSince time.Time // zero: not paused
	PauseReason string
	Last        Tick
	Recent      []Tick // the last outcomes, the newest first, at most [MaxRecent]

	CreatedAt time.Time
	ChangedAt time.Time // of the definition
}

// Outcome is the outcome of a tick.
type Outcome string

// The outcomes of ticks.
const (
	TickCreated   Outcome = schedules.Created
	TickSkipped   Outcome = schedules.Skipped // the last execution had not ended
	TickQueued    Outcome = schedules.Queued  // waits for the end of the last execution
	TickMissed    Outcome = schedules.Missed  // too late
	TickFailed    Outcome = schedules.Failed  // the execution can't be created; tried again every minute
	TickTriggered Outcome = schedules.Triggered
)

// Tick is an act of a schedule. The zero value means nothing yet.
type Tick struct {
	ScheduledFor time.Time // of a trigger: the time of the call
	At           time.Time // when the schedule acted
	Outcome      Outcome
	Error        string // of [TickFailed], only in [State.Last]

	// Execution is the created execution; zero without one. In [State.Last] it is the schedule's last execution, which an
	// earlier tick may have created.
	Execution id.ExecutionID
}

// Filter selects schedules to list; the zero value lists all. A schedule must match all fields.
type Filter struct {
	Namespace id.Namespace
	Set       string
	Kind      string
	Paused    bool // only paused schedules
}

// Describe returns a schedule and the times of the next n ticks, without jitter, at most [MaxUpcoming]. A paused schedule has
// none. The first tick may be past if its execution is about to be created.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrCorruption] for times this process can't compute, and for
// unknown outcomes. One statement; takes no locks.
func Describe(ctx context.Context, eng *engine.Engine, schedule Name, n int) (State, []time.Time, error) {
	const op = "describe schedule"
	c := core.Of(eng)
	if err := schedule.check(c); err != nil {
		return State{}, nil, core.Wrap(op, err)
	}
	if n < 0 || n > MaxUpcoming {
		return State{}, nil, core.Wrap(op, core.Invalid("n", fmt.Sprintf("%d, not between 0 and %d", n, MaxUpcoming)))
	}
	row, err := c.Q.GetSchedule(ctx, c.Reader(), db.GetScheduleParams{Namespace: string(schedule.Namespace), Name: schedule.Name})
	if err != nil {
		return State{}, nil, core.Wrap(op, schedule.orNotFound(err))
	}
	s, err := stateOf(c, &row)
	if err != nil {
		return s, nil, core.Wrap(op, err)
	}
	if s.Next.IsZero() || n == 0 {
		return s, nil, nil
	}
	times, err := schedules.TimesOf(&row)
	if err != nil {
		return s, nil, core.Wrap(op, core.Corrupt("ffx_schedule.cron", err))
	}
	var upcoming []time.Time
	for tick := *row.TickMs; tick > 0 && len(upcoming) < n; tick = times.Next(tick) {
		upcoming = append(upcoming, time.UnixMilli(tick))
	}
	return s, upcoming, nil
}

// All iterates over the schedules that match a filter, in byte order of namespace and name, reading a page at a time. All
// examines every schedule.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrCorruption]. Takes no locks.
func All(ctx context.Context, eng *engine.Engine, filter Filter) iter.Seq2[State, error] {
	c := core.Of(eng)
	return core.All("list schedules", func(after *db.FfxSchedule) ([]db.FfxSchedule, error) {
		if err := cmp.Or(core.CheckText("set", filter.Set, MaxName), core.CheckText("kind", filter.Kind, core.MaxKind)); err != nil {
			return nil, err
		}
		params := db.ListSchedulesParams{PageSize: core.MaxPage}
		if after != nil {
			params.AfterNamespace, params.AfterName = after.Namespace, after.Name
		}
		return c.Q.ListSchedules(ctx, c.Reader(), params)
	}, func(row *db.FfxSchedule) (State, bool, error) {
		s, err := stateOf(c, row)
		return s, err == nil && filter.matches(&s), err
	})
}

func (f *Filter) matches(s *State) bool {
	return (f.Namespace == "" || f.Namespace == s.Namespace) && (f.Set == "" || f.Set == s.Set) &&
		(f.Kind == "" || f.Kind == s.Kind) && (!f.Paused || !s.PausedSince.IsZero())
}

func stateOf(c *core.Core, row *db.FfxSchedule) (State, error) {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	at := func(ms int64) time.Time {
		if ms == 0 {
			return time.Time{}
		}
		return time.UnixMilli(ms)
	}
	s := State{
		Name: row.Name, Namespace: id.Namespace(row.Namespace), Set: row.DeclaredBy,
		Cron: row.Cron, Zone: row.TimeZone, Every: ms(row.EveryMs), Jitter: ms(row.JitterMs),
		Start: at(row.StartMs), End: at(row.EndMs), Missed: Missed(row.Missed), Window: ms(row.WindowMs), Overlap: Overlap(row.Overlap),
		Kind: row.Kind, Lane: id.LaneID(row.LaneID), Priority: int(row.Priority), Tags: core.DecodeTags(row.Tags),
		Queued: core.OptionalTime(row.QueuedMs), PausedSince: core.OptionalTime(row.PausedAtMs), PauseReason: row.PauseReason,
		Last: Tick{
			ScheduledFor: core.OptionalTime(row.LastTickMs), At: core.OptionalTime(row.LastAtMs),
			Outcome: Outcome(row.LastOutcome), Error: row.LastError,
		},
		CreatedAt: time.UnixMilli(row.CreatedAtMs), ChangedAt: time.UnixMilli(row.ChangedAtMs),
	}
	if row.PausedAtMs == nil {
		s.Next = core.OptionalTime(row.TickMs)
	}
	if row.LastPartitionKey != nil && row.LastExecutionID.Valid {
		s.Last.Execution = id.ExecutionIDFromRow(*row.LastPartitionKey, row.LastExecutionID.Bytes)
	}
	spec, err := specOf(c, schedules.TemplateOf(row))
	if err != nil {
		return s, core.Corrupt("ffx_schedule", err)
	}
	s.Unique, s.Sequence, s.Limits, s.Fair = spec.Unique, spec.Sequence, spec.Limits, spec.Fair
	s.Budgets, s.QuotaPolicy = spec.Budgets, spec.QuotaPolicy
	recent, err := schedules.ReadRecent(row.Recent)
	if err != nil {
		return s, core.Corrupt("ffx_schedule.recent", err)
	}
	for _, r := range recent {
		s.Recent = append(s.Recent, Tick{
			ScheduledFor: time.UnixMilli(r.TickMs), At: time.UnixMilli(r.AtMs), Outcome: Outcome(r.Outcome), Execution: r.Execution,
		})
	}
	return s, nil
}
