package engine

import (
	"cmp"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/cron"
)

// maxTicks is the largest number of ticks of one schedule that one transaction acts on. The rest follow in the next.
const maxTicks = 100

// How long a waiting tick lets the last execution be: a tenth of the time that it has waited, within these.
const (
	minQueuePoll = time.Second
	maxQueuePoll = 10 * time.Second
)

// tickTimes are the times of a schedule. Instants are in milliseconds; 0 means none.
type tickTimes struct {
	schedule                 cron.Schedule
	namespace, name          string
	startMs, endMs, jitterMs int64
}

// timesOfRow returns the times of a stored schedule.
func timesOfRow(row *db.FfxSchedule) (tickTimes, error) {
	schedule, err := scheduleOf(row.Cron, row.TimeZone, row.EveryMs, row.StartMs)
	return tickTimesOf(row, schedule), err
}

func tickTimesOf(row *db.FfxSchedule, schedule cron.Schedule) tickTimes {
	return tickTimes{schedule, row.Namespace, row.Name, row.StartMs, row.EndMs, row.JitterMs}
}

// next returns the first tick after an instant.
func (t *tickTimes) next(afterMs int64) int64 {
	next := t.schedule.Next(time.UnixMilli(max(afterMs, t.startMs-1)))
	if next.IsZero() || t.endMs > 0 && next.UnixMilli() > t.endMs {
		return 0
	}
	return next.UnixMilli()
}

// last returns the last tick in (after, upTo].
func (t *tickTimes) last(afterMs, upToMs int64) int64 {
	if t.endMs > 0 {
		upToMs = min(upToMs, t.endMs)
	}
	if last := t.schedule.Last(time.UnixMilli(max(afterMs, t.startMs-1)), time.UnixMilli(upToMs)); !last.IsZero() {
		return last.UnixMilli()
	}
	return 0
}

// due returns when a tick is due: its time, and a delay that depends on the schedule and the tick alone.
func (t *tickTimes) due(tickMs int64) int64 {
	if tickMs == 0 || t.jitterMs == 0 {
		return tickMs
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.namespace + "\x00" + t.name + "\x00" + strconv.FormatInt(tickMs, 10)))
	return core.AddTTL(tickMs, int64(h.Sum64()%uint64(t.jitterMs+1)))
}

// Tick outcomes as they are stored.
const (
	tickCreated   = "created"
	tickSkipped   = "skipped"
	tickQueued    = "queued"
	tickMissed    = "missed"
	tickFailed    = "failed"
	tickTriggered = "triggered"
)

// tickPlan is the work of one look at a due schedule.
type tickPlan struct {
	create   []int64 // the ticks to create
	cancel   bool    // the last execution, first
	tickMs   int64   // the next tick
	queuedMs int64   // the tick that waits
	nextMs   int64   // when to look again

	acts []tickAct // the outcomes of ticks, in order
}

// tickAct is the outcome of a tick.
type tickAct struct {
	tickMs    int64
	outcome   string
	execution id.ExecutionID // zero unless it has created one
}

// planTicks plans the work of a due schedule. running: its last execution has not ended.
func planTicks(times *tickTimes, row *db.FfxSchedule, nowMs int64, running bool) tickPlan {
	if row.TickMs != nil && *row.TickMs == 0 { // recalled
		row.TickMs = new(times.next(nowMs))
	}
	ticks, missedMs, tickMs := times.dueTicks(row, nowMs)
	p := tickPlan{tickMs: tickMs, queuedMs: core.Deref(row.QueuedMs)}
	if missedMs > 0 {
		p.acted(missedMs, tickMissed)
	}
	if p.queuedMs > 0 && Overlap(row.Overlap) != OverlapQueue { // the rule has changed since
		ticks, p.queuedMs = append([]int64{p.queuedMs}, ticks...), 0
	}
	switch Overlap(row.Overlap) {
	case OverlapSkip:
		p.keep(ticks, running, 0)
	case OverlapQueue:
		p.keep(ticks, running, 1)
	case OverlapCancel:
		if n := len(ticks); n > 0 {
			p.acted(ticks[n-1], tickCreated)
			p.create, p.cancel = ticks[n-1:], running
		}
	default:
		for _, tick := range ticks {
			p.acted(tick, tickCreated)
		}
		p.create = ticks
	}
	p.nextMs = times.due(p.tickMs)
	if p.queuedMs > 0 {
		waited := time.Duration(nowMs-p.queuedMs) * time.Millisecond
		look := core.AddTTL(nowMs, min(max(waited/10, minQueuePoll), maxQueuePoll).Milliseconds())
		if p.nextMs == 0 || look < p.nextMs {
			p.nextMs = look
		}
	}
	return p
}

func (p *tickPlan) acted(tickMs int64, outcome string) {
	p.acts = append(p.acts, tickAct{tickMs: tickMs, outcome: outcome})
}

// made notes the execution of the first tick that has none yet: its own, or the one in its way.
func (p *tickPlan) made(x id.ExecutionID, outcome string) {
	for i := range p.acts {
		if act := &p.acts[i]; act.outcome == tickCreated && act.execution.IsZero() {
			act.execution, act.outcome = x, outcome
			return
		}
	}
}

// keep creates one tick unless the last execution is running, lets as many wait as it may, and skips the others.
func (p *tickPlan) keep(ticks []int64, running bool, room int) {
	if p.queuedMs > 0 && !running {
		ticks, p.queuedMs = append([]int64{p.queuedMs}, ticks...), 0
	}
	for _, tick := range ticks {
		switch {
		case !running:
			p.create, running = []int64{tick}, true
			p.acted(tick, tickCreated)
		case room > 0 && p.queuedMs == 0:
			p.queuedMs = tick
			p.acted(tick, tickQueued)
		default:
			p.acted(tick, tickSkipped)
		}
	}
}

// dueTicks returns the due ticks to act on, the last one that was missed, and the next one.
func (t *tickTimes) dueTicks(row *db.FfxSchedule, nowMs int64) (ticks []int64, missedMs, next int64) {
	first := core.Deref(row.TickMs)
	switch {
	case first == 0:
		return nil, 0, 0
	case Missed(row.Missed) == MissedAll:
		if from := nowMs - row.WindowMs; first < from {
			missedMs = t.last(first-1, from-1)
			first = t.next(from - 1)
		}
	default:
		// All up to here are due for sure, so the last of them comes before those that the jitter decides.
		if last := t.last(first, nowMs-t.jitterMs); last > 0 {
			missedMs, first = first, last
		}
	}
	for next = first; next > 0 && t.due(next) <= nowMs && len(ticks) < maxTicks; next = t.next(next) {
		if len(ticks) > 0 && Missed(row.Missed) != MissedAll {
			missedMs, ticks = ticks[0], ticks[:0]
		}
		ticks = append(ticks, next)
	}
	if Missed(row.Missed) == MissedNone && len(ticks) > 0 && nowMs-t.due(ticks[0]) > MissedGrace.Milliseconds() {
		missedMs, ticks = ticks[0], nil
	}
	return ticks, missedMs, next
}

// keepLast lets the last due tick of a schedule wait for the next look. It returns the outcomes of the ticks that it gives up.
func (t *tickTimes) keepLast(row *db.FfxSchedule, nowMs int64) (acts []tickAct) {
	ticks, missedMs, _ := t.dueTicks(row, nowMs)
	if missedMs > 0 {
		acts = append(acts, tickAct{tickMs: missedMs, outcome: tickMissed})
	}
	for i, tick := range ticks {
		if i == len(ticks)-1 && core.Deref(row.QueuedMs) == 0 {
			row.QueuedMs = &ticks[i]
			break
		}
		acts = append(acts, tickAct{tickMs: tick, outcome: tickMissed})
	}
	return acts
}

// tickSpec returns the execution of a tick.
func tickSpec(row *db.FfxSchedule, tickMs int64) ExecutionSpec {
	tags := core.DecodeTags(row.Tags)
	if tags == nil {
		tags = make(map[string]string, 2)
	}
	unique, sequence, err := orderOf(row)
	limits, unreadLimits := limitsOfRow(row)
	share, unreadShare := shareOf(row)
	err = cmp.Or(err, unreadLimits, unreadShare)
	tags[ScheduleTag], tags[ScheduledForTag] = row.Name, time.UnixMilli(tickMs).UTC().Format(time.RFC3339Nano)
	budgets, quota := budgetsOf(row.BudgetIDs), quotaOf(row.QuotaPolicyID)
	return ExecutionSpec{
		Budgets: budgets, QuotaPolicy: quota,
		Namespace: id.Namespace(row.Namespace), Kind: row.Kind, Lane: id.LaneID(row.LaneID),
		Payload: row.Payload, PayloadEncoding: row.PayloadEncoding, Priority: int(row.Priority), Creator: row.Creator,
		Tags: tags, Unique: unique, Sequence: sequence, Limits: limits, Fair: share, storedPolicy: row.Policy, mistake: err,
		setsOwnTags: true,
	}
}

// scheduleMoves are schedules with their last and next ticks.
type scheduleMoves struct{ db.MoveSchedulesParams }

func newScheduleMoves(n int) (m scheduleMoves) {
	m.Namespaces, m.Names = make([]string, 0, n), make([]string, 0, n)
	return m
}

func (m *scheduleMoves) add(row *db.FfxSchedule) {
	m.Namespaces, m.Names = append(m.Namespaces, row.Namespace), append(m.Names, row.Name)
	m.NextsMs, m.TicksMs = append(m.NextsMs, core.Deref(row.NextMs)), append(m.TicksMs, core.Deref(row.TickMs))
	m.QueuedMs, m.LastTicksMs = append(m.QueuedMs, core.Deref(row.QueuedMs)), append(m.LastTicksMs, core.Deref(row.LastTickMs))
	m.LastAtMs, m.LastOutcomes = append(m.LastAtMs, core.Deref(row.LastAtMs)), append(m.LastOutcomes, row.LastOutcome)
	m.LastErrors, m.Recents = append(m.LastErrors, row.LastError), append(m.Recents, row.Recent)
	m.LastPartitionKeys = append(m.LastPartitionKeys, core.Deref(row.LastPartitionKey))
	id := row.LastExecutionID
	if row.LastPartitionKey == nil {
		id = pgtype.UUID{}
	}
	m.LastExecutionIDs = append(m.LastExecutionIDs, id)
}

// timesKey is the part of a schedule that its times follow from. Many schedules share it, and parsing takes longer than all
// else that a tick costs this process.
type timesKey struct {
	cron, zone       string
	everyMs, startMs int64
}
