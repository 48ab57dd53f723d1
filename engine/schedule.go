package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
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

	// PauseVanished pauses it, unless it is paused already. It goes on when it is declared or set again, for instance after a
	// roll-back, or by [Operator.ResumeSchedule].
	PauseVanished Vanished = "pause"
)

// Declared is the result of [Operator.DeclareSchedules].
type Declared struct {
	Vanished []string // the names of the schedules that were removed or paused, sorted
}

// SetSchedule creates a schedule, or changes the one of this name. If its times have not changed, its next tick stays;
// otherwise the next tick is the first one from now on, after the last one of the former times that is due already and that
// [Missed] wants. A paused schedule stays paused, unless it was paused by [PauseVanished]. A schedule that a set declares
// leaves the set: declare it in one place.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention]. Transaction: locks the schedule, after registering a
// lane that is new. In a caller's transaction the change is effective with its commit. Safe to repeat.
func (o Operator) SetSchedule(ctx context.Context, spec ScheduleSpec) error {
	const op = "set schedule"
	puts := schedulePuts{Engine: o.e}
	if err := puts.add(spec, ""); err != nil {
		return core.Wrap(op, err)
	}
	if err := o.e.findAllLimits(ctx, puts.creations); err != nil {
		return core.Wrap(op, err)
	}
	if err := puts.plan(ctx); err != nil {
		return core.Wrap(op, err)
	}
	_, err := core.InTx(ctx, o.e.c, op, func(tx *core.Txn) (struct{}, error) { return struct{}{}, puts.put(ctx, tx) })
	return err
}

// DeclareSchedules makes the schedules of a set those that a program declares, when it starts: new ones are created, changed
// ones are changed as by [Operator.SetSchedule], and those that it no longer declares are removed or paused, as the set says.
// Any number of processes may call it at once. While two versions of a program run side by side, the last call counts: call
// it when a process starts, not again and again.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention]. Transaction: a constant number of statements; locks
// the schedules of the set in the order of their names. Safe to repeat: unchanged schedules are not written.
func (o Operator) DeclareSchedules(ctx context.Context, set ScheduleSet) (Declared, error) {
	const op = "declare schedules"
	e := o.e
	puts := schedulePuts{Engine: e}
	if err := puts.addSet(&set); err != nil {
		return Declared{}, core.Wrap(op, err)
	}
	if err := e.findAllLimits(ctx, puts.creations); err != nil {
		return Declared{}, core.Wrap(op, err)
	}
	if err := puts.plan(ctx); err != nil {
		return Declared{}, core.Wrap(op, err)
	}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (Declared, error) {
		names := slices.Clone(puts.params.Names)
		known, err := e.c.Q.LockDeclaredSchedules(ctx, tx, db.LockDeclaredSchedulesParams{
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
			_, err = e.c.Q.PauseSchedules(ctx, tx, db.PauseSchedulesParams{
				Namespace: string(set.Namespace), Names: gone.Vanished, NowMs: e.c.NowMs(), Reason: "no longer declared by " + set.Name, Vanished: true,
			})
		} else {
			_, err = e.c.Q.DropSchedules(ctx, tx, db.DropSchedulesParams{Namespace: string(set.Namespace), Names: gone.Vanished})
		}
		return gone, err
	})
}

// DeleteSchedule deletes a schedule. Its executions stay.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the schedule.
func (o Operator) DeleteSchedule(ctx context.Context, schedule ScheduleName) error {
	const op = "delete schedule"
	e := o.e
	if err := schedule.check(e); err != nil {
		return core.Wrap(op, err)
	}
	n, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return e.c.Q.DropSchedules(ctx, conn, db.DropSchedulesParams{Namespace: string(schedule.Namespace), Names: []string{schedule.Name}})
	})
	if err == nil && n == 0 {
		err = core.Wrap(op, schedule.notFound())
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
	if set.Namespace, err = p.c.NamespaceOr(set.Namespace); err != nil {
		return err
	}
	switch {
	case set.Name == "":
		return core.Invalid("Name", "is empty")
	case set.Vanished != RemoveVanished && set.Vanished != PauseVanished:
		return core.Invalid("Vanished", fmt.Sprintf("%q is neither RemoveVanished nor PauseVanished", set.Vanished))
	case len(set.Schedules) > MaxSchedules:
		return core.Invalid("Schedules", fmt.Sprintf("are %d, limit %d", len(set.Schedules), MaxSchedules))
	}
	if err := core.CheckText("Name", set.Name, MaxScheduleName); err != nil {
		return err
	}
	p.params.Namespace, p.params.DeclaredBy = string(set.Namespace), set.Name
	sorted := slices.SortedFunc(slices.Values(set.Schedules), func(a, b ScheduleSpec) int { return cmp.Compare(a.Name, b.Name) })
	for i, spec := range sorted {
		if i > 0 && spec.Name == sorted[i-1].Name {
			return core.Invalid("Schedules", fmt.Sprintf("declare %q twice", spec.Name))
		}
		spec.Namespace = cmp.Or(spec.Namespace, spec.Execution.Namespace, set.Namespace)
		if spec.Namespace != set.Namespace {
			return core.Invalid("Schedules", fmt.Sprintf("%q is of another namespace than the set", spec.Name))
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
	tags, err := tagsOf(s.Execution.Tags)
	if err != nil {
		return core.InvalidBecause("Execution.Tags", err)
	}
	unique, err := storedUnique(s.Execution.Unique)
	if err != nil {
		return err
	}
	sequence, err := storedSequence(s.Execution.Sequence)
	if err != nil {
		return err
	}
	limits, err := storedLimits(s.Execution.Limits)
	if err != nil {
		return err
	}
	share, err := storedFair(c.fair)
	if err != nil {
		return err
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
	a.UniqueWorks, a.Sequences = append(a.UniqueWorks, unique), append(a.Sequences, sequence)
	a.BudgetIDs, a.Limits, a.Fairs = append(a.BudgetIDs, c.gates.budgetTexts()), append(a.Limits, limits), append(a.Fairs, share)
	a.QuotaPolicyIDs = append(a.QuotaPolicyIDs, pgQuota(s.Execution.QuotaPolicy))
	return nil
}

// plan computes the next ticks from now on. It is done before the transaction: an expression may be searched for long.
func (p *schedulePuts) plan(ctx context.Context) error {
	if len(p.times) == 0 {
		return nil
	}
	now, err := p.c.Q.GetNow(ctx, p.c.Reader(), p.c.NowMs())
	if err != nil {
		return err
	}
	p.params.NowMs = now
	for i := range p.times {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tick := p.times[i].next(now)
		p.params.TicksMs = append(p.params.TicksMs, tick)
		p.params.NextsMs = append(p.params.NextsMs, p.times[i].due(tick))
	}
	return nil
}

// put writes the schedules. Their lanes are registered now, so that no tick has to wait for another transaction that registers
// the same one.
func (p *schedulePuts) put(ctx context.Context, tx *core.Txn) error {
	if len(p.times) == 0 {
		return nil
	}
	if err := p.keepDue(ctx, tx); err != nil {
		return err
	}
	if err := p.c.Q.PutSchedules(ctx, tx, p.params); err != nil {
		return err
	}
	tx.Due.Rescheduled()
	return p.register(ctx, tx, p.unregistered(p.creations))
}

// keepDue lets the last due tick of each schedule wait whose times are about to change, so that it is not lost.
func (p *schedulePuts) keepDue(ctx context.Context, tx *core.Txn) error {
	rows, err := p.c.Q.LockDueSchedules(ctx, tx, db.LockDueSchedulesParams{
		Namespace: p.params.Namespace, Names: p.params.Names, NowMs: p.params.NowMs,
	})
	if err != nil {
		return err
	}
	moves := newScheduleMoves(len(rows))
	moves.AfterMs = p.params.NowMs
	for i := range rows {
		row := db.FfxSchedule(rows[i])
		n, _ := slices.BinarySearch(p.params.Names, row.Name)
		a := &p.params
		if (timesKey{row.Cron, row.TimeZone, row.EveryMs, row.StartMs}) == (timesKey{a.Crons[n], a.TimeZones[n], a.EverysMs[n], a.StartsMs[n]}) &&
			row.JitterMs == a.JittersMs[n] && row.EndMs == a.EndsMs[n] {
			continue
		}
		times, err := timesOfRow(&row)
		if err != nil { // a newer version's
			continue
		}
		acts := times.keepLast(&row, a.NowMs)
		if len(acts) > 0 {
			last := &acts[len(acts)-1]
			row.LastTickMs, row.LastAtMs, row.LastOutcome, row.LastError = &last.tickMs, &a.NowMs, last.outcome, ""
			row.Recent = withRecent(row.Recent, a.NowMs, acts)
		}
		moves.add(&row)
	}
	if len(moves.Names) == 0 {
		return nil
	}
	_, err = p.c.Q.MoveSchedules(ctx, tx, moves.MoveSchedulesParams)
	return err
}
