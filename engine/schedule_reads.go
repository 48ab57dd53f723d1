package engine

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxUpcoming is the largest number of ticks that [Operator.DescribeSchedule] computes.
const MaxUpcoming = 1000

// Schedule is a stored schedule with its last and next ticks.
type Schedule struct {
	Name      string
	Namespace id.Namespace
	Set       string // the [ScheduleSet] that declares it; "" if none does

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
	Tags     map[string]string // without those of the tick
	Unique   *Unique           // nil: the executions are not unique
	Sequence Sequence          // of the executions; zero: none
	Limits   []LimitKey        // of the executions; nil: none
	Fair     FairShare         // of the executions; zero: none

	Budgets     []id.BudgetID     // of the executions, sorted; nil: none
	QuotaPolicy *id.QuotaPolicyID // of the executions; nil: none

	Next        time.Time // the time of the next tick, without jitter; zero: none follows, or it is paused
	Queued      time.Time // of the tick that waits for the last execution; zero: none does
	PausedSince time.Time // zero: it is not paused
	PauseReason string
	Last        Tick
	Recent      []Tick // the last outcomes, the newest first, at most [MaxRecentTicks]

	CreatedAt time.Time
	ChangedAt time.Time // of its definition
}

// TickOutcome is the outcome of a tick.
type TickOutcome string

// The outcomes of ticks.
const (
	TickCreated   TickOutcome = tickCreated
	TickSkipped   TickOutcome = tickSkipped // the last execution had not ended
	TickQueued    TickOutcome = tickQueued  // it waits for the end of the last execution
	TickMissed    TickOutcome = tickMissed  // it was too late
	TickFailed    TickOutcome = tickFailed  // its execution can't be created; it is tried again every minute
	TickTriggered TickOutcome = tickTriggered
)

// Tick is something that a schedule did. The zero value means nothing yet.
type Tick struct {
	ScheduledFor time.Time // of a trigger, when it was called
	At           time.Time // when it was acted on
	Outcome      TickOutcome
	Error        string // of [TickFailed], in [Schedule.Last] alone

	// Execution is the execution that was created; zero if none was. In [Schedule.Last] it is the schedule's last
	// execution, which an earlier tick may have created.
	Execution id.ExecutionID
}

// ScheduleFilter selects schedules to list; the zero value lists all. A schedule must match all fields.
type ScheduleFilter struct {
	Namespace id.Namespace
	Set       string
	Kind      string
	Paused    bool // paused ones alone
}

// DescribeSchedule returns a schedule and the times of its next n ticks, without jitter, at most [MaxUpcoming]. A paused
// schedule has none. They are computed from the schedule's next tick, so the first one may be past if it is about to be
// created.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrCorruption] for times that this process can't compute, and
// for outcomes that it doesn't know. One statement; takes no locks.
func (o Operator) DescribeSchedule(ctx context.Context, schedule ScheduleName, n int) (Schedule, []time.Time, error) {
	const op = "describe schedule"
	e := o.e
	if err := schedule.check(e); err != nil {
		return Schedule{}, nil, core.Wrap(op, err)
	}
	if n < 0 || n > MaxUpcoming {
		return Schedule{}, nil, core.Wrap(op, core.Invalid("n", fmt.Sprintf("%d, not between 0 and %d", n, MaxUpcoming)))
	}
	row, err := e.c.Q.GetSchedule(ctx, e.c.Reader(), db.GetScheduleParams{Namespace: string(schedule.Namespace), Name: schedule.Name})
	if err != nil {
		return Schedule{}, nil, core.Wrap(op, schedule.orNotFound(err))
	}
	s, err := scheduleFrom(&row)
	if err != nil {
		return s, nil, core.Wrap(op, err)
	}
	if s.Next.IsZero() || n == 0 {
		return s, nil, nil
	}
	times, err := timesOfRow(&row)
	if err != nil {
		return s, nil, core.Wrap(op, core.Corrupt("ffx_schedule.cron", err))
	}
	var upcoming []time.Time
	for tick := *row.TickMs; tick > 0 && len(upcoming) < n; tick = times.next(tick) {
		upcoming = append(upcoming, time.UnixMilli(tick))
	}
	return s, upcoming, nil
}

// ListSchedules returns a page of the schedules that match a filter, in byte order of namespace and name. after is the
// [Page.Next] of the previous page, or "" for the first page. A page examines limit schedules; 0 or more than
// [MaxPage] means [MaxPage]. It may be short or empty, with a cursor that continues after them.
//
// Errors: [fferr.ErrInvalidInput] for a negative limit or a cursor of another listing. One statement; takes no locks.
func (o Operator) ListSchedules(ctx context.Context, filter ScheduleFilter, after string, limit int) (Page[Schedule], error) {
	const op = "list schedules"
	page, err := o.listSchedules(ctx, filter, after, limit)
	return page, core.Wrap(op, err)
}

// Schedules iterates over the schedules that [Operator.ListSchedules] lists, a page at a time.
func (o Operator) Schedules(ctx context.Context, filter ScheduleFilter) iter.Seq2[Schedule, error] {
	return core.Pages(func(after string) (Page[Schedule], error) { return o.ListSchedules(ctx, filter, after, MaxPage) })
}

func (o Operator) listSchedules(ctx context.Context, f ScheduleFilter, after string, limit int) (page Page[Schedule], err error) {
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	if err := cmp.Or(core.CheckText("set", f.Set, MaxScheduleName), core.CheckText("kind", f.Kind, core.MaxKind)); err != nil {
		return page, err
	}
	list := fmt.Sprintf("schedules %q %q %q %v", f.Namespace, f.Set, f.Kind, f.Paused)
	last, err := core.ReadCursor(list, after)
	if err != nil {
		return page, err
	}
	namespace, name, _ := strings.Cut(string(last), "\x00")
	rows, err := o.e.c.Q.ListSchedules(ctx, o.e.c.Reader(), db.ListSchedulesParams{
		AfterNamespace: namespace, AfterName: name, PageSize: int32(limit) + 1,
	})
	if err != nil {
		return page, err
	}
	found := core.PageOf(rows, limit, func(row *db.FfxSchedule) string {
		return core.CursorOf(list, []byte(row.Namespace+"\x00"+row.Name))
	})
	page.Next = found.Next
	for i := range found.Items {
		s, err := scheduleFrom(&found.Items[i])
		if err != nil {
			return page, err
		}
		if f.matches(&s) {
			page.Items = append(page.Items, s)
		}
	}
	return page, nil
}

func (f *ScheduleFilter) matches(s *Schedule) bool {
	return (f.Namespace == "" || f.Namespace == s.Namespace) && (f.Set == "" || f.Set == s.Set) &&
		(f.Kind == "" || f.Kind == s.Kind) && (!f.Paused || !s.PausedSince.IsZero())
}

func scheduleFrom(row *db.FfxSchedule) (Schedule, error) {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	at := func(ms int64) time.Time {
		if ms == 0 {
			return time.Time{}
		}
		return time.UnixMilli(ms)
	}
	s := Schedule{
		Name: row.Name, Namespace: id.Namespace(row.Namespace), Set: row.DeclaredBy,
		Cron: row.Cron, Zone: row.TimeZone, Every: ms(row.EveryMs), Jitter: ms(row.JitterMs),
		Start: at(row.StartMs), End: at(row.EndMs), Missed: Missed(row.Missed), Window: ms(row.WindowMs), Overlap: Overlap(row.Overlap),
		Kind: row.Kind, Lane: id.LaneID(row.LaneID), Priority: int(row.Priority), Tags: core.DecodeTags(row.Tags),
		Queued: core.OptionalTime(row.QueuedMs), PausedSince: core.OptionalTime(row.PausedAtMs), PauseReason: row.PauseReason,
		Last: Tick{
			ScheduledFor: core.OptionalTime(row.LastTickMs), At: core.OptionalTime(row.LastAtMs),
			Outcome: TickOutcome(row.LastOutcome), Error: row.LastError,
		},
		CreatedAt: time.UnixMilli(row.CreatedAtMs), ChangedAt: time.UnixMilli(row.ChangedAtMs),
	}
	if row.PausedAtMs == nil {
		s.Next = core.OptionalTime(row.TickMs)
	}
	if row.LastPartitionKey != nil && row.LastExecutionID.Valid {
		s.Last.Execution = id.ExecutionIDFromRow(*row.LastPartitionKey, row.LastExecutionID.Bytes)
	}
	s.Budgets, s.QuotaPolicy = budgetsOf(row.BudgetIDs), quotaOf(row.QuotaPolicyID)
	var err error
	if s.Unique, s.Sequence, err = orderOf(row); err != nil {
		return s, core.Corrupt("ffx_schedule", err)
	}
	if s.Limits, err = limitsOfRow(row); err != nil {
		return s, core.Corrupt("ffx_schedule.limits", err)
	}
	if s.Fair, err = shareOf(row); err != nil {
		return s, core.Corrupt("ffx_schedule.fair", err)
	}
	if s.Recent, err = recentFrom(row.Recent); err != nil {
		return s, core.Corrupt("ffx_schedule.recent", err)
	}
	return s, nil
}
