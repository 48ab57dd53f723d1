// Package schedules has the times of stored schedules, and plans their due ticks. It sends no statement.
package schedules

import (
	"hash/fnv"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/cron"
)

// The stored rules of a schedule.
const (
	MissedLast = "last"
	MissedNone = "none"
	MissedAll  = "all"

	OverlapAllow  = "allow"
	OverlapSkip   = "skip"
	OverlapQueue  = "queue"
	OverlapCancel = "cancel"
)

// MissedGrace is the greatest delay of a tick with [MissedNone].
const MissedGrace = 30 * time.Second

// maxTicks is the largest number of ticks of one schedule in one transaction. The rest follow in the next.
const maxTicks = 100

// A waiting tick looks at the last execution again after a tenth of its wait so far, within these bounds.
const (
	minQueuePoll = time.Second
	MaxQueuePoll = 10 * time.Second
)

// Times are the times of a schedule. Instants are in milliseconds; 0 means none.
type Times struct {
	schedule                 cron.Schedule
	namespace, name          string
	StartMs, EndMs, JitterMs int64
}

// New returns the times of a schedule.
func New(namespace, name string, key Key, endMs, jitterMs int64) (Times, error) {
	schedule, err := key.parse()
	return Times{schedule, namespace, name, key.StartMs, endMs, jitterMs}, err
}

// TimesOf returns the times of a stored schedule.
func TimesOf(row *db.FfxSchedule) (Times, error) {
	return New(row.Namespace, row.Name, KeyOf(row), row.EndMs, row.JitterMs)
}

// Parsed has the times of schedules by their keys. Many schedules share times, and parsing takes longer than the rest of a tick's
// work in this process.
type Parsed map[Key]cron.Schedule

// TimesOf returns the times of a stored schedule.
func (p Parsed) TimesOf(row *db.FfxSchedule) (Times, error) {
	key := KeyOf(row)
	schedule, known := p[key]
	if !known {
		var err error
		if schedule, err = key.parse(); err != nil {
			return Times{}, err
		}
		p[key] = schedule
	}
	return Times{schedule, row.Namespace, row.Name, row.StartMs, row.EndMs, row.JitterMs}, nil
}

// Next returns the first tick after an instant.
func (t *Times) Next(afterMs int64) int64 {
	next := t.schedule.Next(time.UnixMilli(max(afterMs, t.StartMs-1)))
	if next.IsZero() || t.EndMs > 0 && next.UnixMilli() > t.EndMs {
		return 0
	}
	return next.UnixMilli()
}

// last returns the last tick in (after, upTo].
func (t *Times) last(afterMs, upToMs int64) int64 {
	if t.EndMs > 0 {
		upToMs = min(upToMs, t.EndMs)
	}
	if last := t.schedule.Last(time.UnixMilli(max(afterMs, t.StartMs-1)), time.UnixMilli(upToMs)); !last.IsZero() {
		return last.UnixMilli()
	}
	return 0
}

// Due returns the due time of a tick: the tick, and a delay by the schedule and the tick alone.
func (t *Times) Due(tickMs int64) int64 {
	if tickMs == 0 || t.JitterMs == 0 {
		return tickMs
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.namespace + "\x00" + t.name + "\x00" + strconv.FormatInt(tickMs, 10)))
	return core.AddTTL(tickMs, int64(h.Sum64()%uint64(t.JitterMs+1)))
}

// The stored outcomes of ticks.
const (
	Created   = "created"
	Skipped   = "skipped"
	Queued    = "queued"
	Missed    = "missed"
	Failed    = "failed"
	Triggered = "triggered"
)

// Plan is the work of one look at a due schedule.
type Plan struct {
	Create   []int64 // the ticks to create
	Cancel   bool    // the last execution, first
	TickMs   int64   // the next tick
	QueuedMs int64   // the waiting tick
	NextMs   int64   // when to look again

	Acts []Act // the outcomes of ticks, in order
}

// Act is the outcome of a tick.
type Act struct {
	TickMs    int64
	Outcome   string
	Execution id.ExecutionID // zero if there is none
}

// PlanTicks plans the work of a due schedule. running: the last execution has not ended.
func PlanTicks(times *Times, row *db.FfxSchedule, nowMs int64, running bool) Plan {
	if row.TickMs != nil && *row.TickMs == 0 { // recalled
		row.TickMs = new(times.Next(nowMs))
	}
	ticks, missedMs, tickMs := times.dueTicks(row, nowMs)
	p := Plan{TickMs: tickMs, QueuedMs: core.Deref(row.QueuedMs)}
	if missedMs > 0 {
		p.acted(missedMs, Missed)
	}
	if p.QueuedMs > 0 && row.Overlap != OverlapQueue { // the rule has changed since
		ticks, p.QueuedMs = append([]int64{p.QueuedMs}, ticks...), 0
	}
	switch row.Overlap {
	case OverlapSkip:
		p.keep(ticks, running, 0)
	case OverlapQueue:
		p.keep(ticks, running, 1)
	case OverlapCancel:
		if n := len(ticks); n > 0 {
			p.acted(ticks[n-1], Created)
			p.Create, p.Cancel = ticks[n-1:], running
		}
	default:
		for _, tick := range ticks {
			p.acted(tick, Created)
		}
		p.Create = ticks
	}
	p.NextMs = times.Due(p.TickMs)
	if p.QueuedMs > 0 {
		waited := time.Duration(nowMs-p.QueuedMs) * time.Millisecond
		look := core.AddTTL(nowMs, min(max(waited/10, minQueuePoll), MaxQueuePoll).Milliseconds())
		if p.NextMs == 0 || look < p.NextMs {
			p.NextMs = look
		}
	}
	return p
}

func (p *Plan) acted(tickMs int64, outcome string) {
	p.Acts = append(p.Acts, Act{TickMs: tickMs, Outcome: outcome})
}

// Made records the execution of the first tick without one: a new execution, or the one in the way.
func (p *Plan) Made(x id.ExecutionID, outcome string) {
	for i := range p.Acts {
		if act := &p.Acts[i]; act.Outcome == Created && act.Execution.IsZero() {
			act.Execution, act.Outcome = x, outcome
			return
		}
	}
}

// keep creates one tick unless the last execution is running, keeps the next ones up to a number, and skips the rest.
func (p *Plan) keep(ticks []int64, running bool, most int) {
	if p.QueuedMs > 0 && !running {
		ticks, p.QueuedMs = append([]int64{p.QueuedMs}, ticks...), 0
	}
	for _, tick := range ticks {
		switch {
		case !running:
			p.Create, running = []int64{tick}, true
			p.acted(tick, Created)
		case most > 0 && p.QueuedMs == 0:
			p.QueuedMs = tick
			p.acted(tick, Queued)
		default:
			p.acted(tick, Skipped)
		}
	}
}

// dueTicks returns the due ticks to act on, the last missed one, and the next one.
func (t *Times) dueTicks(row *db.FfxSchedule, nowMs int64) (ticks []int64, missedMs, next int64) {
	first := core.Deref(row.TickMs)
	switch {
	case first == 0:
		return nil, 0, 0
	case row.Missed == MissedAll:
		if from := nowMs - row.WindowMs; first < from {
			missedMs = t.last(first-1, from-1)
			first = t.Next(from - 1)
		}
	default:
		// All ticks up to here are due, whatever the jitter.
		if last := t.last(first, nowMs-t.JitterMs); last > 0 {
			missedMs, first = first, last
		}
	}
	for next = first; next > 0 && t.Due(next) <= nowMs && len(ticks) < maxTicks; next = t.Next(next) {
		if len(ticks) > 0 && row.Missed != MissedAll {
			missedMs, ticks = ticks[0], ticks[:0]
		}
		ticks = append(ticks, next)
	}
	if row.Missed == MissedNone && len(ticks) > 0 && nowMs-t.Due(ticks[0]) > MissedGrace.Milliseconds() {
		missedMs, ticks = ticks[0], nil
	}
	return ticks, missedMs, next
}

// KeepLast makes the last due tick of a schedule wait for the next look, and returns the outcomes of the dropped ticks.
func (t *Times) KeepLast(row *db.FfxSchedule, nowMs int64) (acts []Act) {
	ticks, missedMs, _ := t.dueTicks(row, nowMs)
	if missedMs > 0 {
		acts = append(acts, Act{TickMs: missedMs, Outcome: Missed})
	}
	for i, tick := range ticks {
		if i == len(ticks)-1 && core.Deref(row.QueuedMs) == 0 {
			row.QueuedMs = &ticks[i]
			break
		}
		acts = append(acts, Act{TickMs: tick, Outcome: Missed})
	}
	return acts
}

// Moves are schedules with their last and next ticks.
type Moves struct{ db.MoveSchedulesParams }

// NewMoves returns moves of up to n schedules.
func NewMoves(n int) (m Moves) {
	m.Namespaces, m.Names = make([]string, 0, n), make([]string, 0, n)
	return m
}

// Add adds a schedule from its row.
func (m *Moves) Add(row *db.FfxSchedule) {
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

// Key is the part of a schedule with its times.
type Key struct {
	Cron, Zone       string
	EveryMs, StartMs int64
}

// KeyOf returns the key of a stored schedule.
func KeyOf(row *db.FfxSchedule) Key { return Key{row.Cron, row.TimeZone, row.EveryMs, row.StartMs} }

func (k Key) parse() (cron.Schedule, error) {
	if k.EveryMs > 0 {
		return cron.Every(time.Duration(k.EveryMs)*time.Millisecond, time.UnixMilli(k.StartMs)), nil
	}
	schedule, err := cron.Parse(k.Cron, k.Zone)
	if err != nil {
		return schedule, core.InvalidBecause("Cron", err)
	}
	return schedule, nil
}

// TemplateOf returns the executions of a stored schedule.
func TemplateOf(row *db.FfxSchedule) core.Template {
	t := core.Template{
		Namespace: row.Namespace, Lane: row.LaneID, Kind: row.Kind, Payload: row.Payload, PayloadEncoding: row.PayloadEncoding,
		Priority: row.Priority, Creator: row.Creator, Tags: core.DecodeTags(row.Tags), Policy: row.Policy,
		Unique: string(row.UniqueWork), Sequence: string(row.Sequence), Limits: string(row.Limits), Fair: string(row.Fair),
	}
	for _, b := range row.BudgetIDs {
		t.Budgets = append(t.Budgets, id.BudgetID(b.Bytes))
	}
	if row.QuotaPolicyID.Valid {
		t.QuotaPolicy = new(id.QuotaPolicyID(row.QuotaPolicyID.Bytes))
	}
	return t
}

// Tags of the executions of a schedule.
const (
	Tag     = "ffx.schedule"
	TimeTag = "ffx.scheduled_for"
)

// TickOf returns the execution of a tick.
func TickOf(row *db.FfxSchedule, tickMs int64) core.Template {
	t := TemplateOf(row)
	if t.Tags == nil {
		t.Tags = make(map[string]string, 2)
	}
	t.Tags[Tag], t.Tags[TimeTag] = row.Name, time.UnixMilli(tickMs).UTC().Format(time.RFC3339Nano)
	return t
}
