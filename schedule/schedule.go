// Package schedule creates executions at times: by cron expressions in any time zone, or at intervals. A schedule is a row,
// and workers create the executions of due ticks, each tick once.
//
// A program declares its schedules when it starts, as a [Set]:
//
//	_, err := schedule.Declare(ctx, eng, schedule.Set{
//		Name: "reports", Vanished: schedule.RemoveVanished,
//		Schedules: []schedule.Spec{
//			schedule.Of(Report, "nightly", ReportArgs{}, schedule.Spec{Cron: "30 3 * * *", Zone: "Europe/Berlin"}),
//		},
//	})
//
// Schedules made by users of a program are created by [Put] and deleted by [Delete]. An operator lists, pauses, resumes and
// triggers schedules, and creates the executions of past ticks with [Backfill].
package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/schedules"
	"github.com/jackc/pgx/v5/pgtype"
)

// MaxSet is the largest number of schedules in a [Set].
const MaxSet = 1000

// Set has the schedules declared in a program's code.
type Set struct {
	Name      string       // identifies the set in its namespace; at most [MaxName] bytes
	Namespace id.Namespace // of the set and its schedules; default: the engine's
	Schedules []Spec

	// Vanished decides about schedules formerly declared by the set. Required.
	Vanished Vanished
}

// Vanished decides about a schedule no longer declared by its set.
type Vanished string

const (
	// RemoveVanished deletes the schedule. Its executions stay.
	RemoveVanished Vanished = "remove"

	// PauseVanished pauses the schedule, unless it is paused already. The schedule resumes when it is declared or put again,
	// for instance after a roll-back, or by [Resume].
	PauseVanished Vanished = "pause"
)

// Declared is the result of [Declare].
type Declared struct {
	Vanished []string // names of removed or paused schedules, sorted
}

// Put creates a schedule, or changes the schedule of this name. If the times have not changed, the next tick stays. Otherwise
// the next tick is the first one from now on; if the former times have a due tick and [Missed] allows, the last due tick
// comes before. A paused schedule stays paused, unless [PauseVanished] paused it. A schedule declared by a set leaves the
// set: declare it in one place.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention]. Transaction: locks the schedule, after registering
// a new lane. In a caller's transaction the change takes effect with the commit. Safe to repeat.
func Put(ctx context.Context, eng *engine.Engine, spec Spec) error {
	const op = "put schedule"
	c := core.Of(eng)
	puts := batch{c: c}
	if err := puts.add(spec, ""); err != nil {
		return core.Wrap(op, err)
	}
	if err := puts.plan(ctx); err != nil {
		return core.Wrap(op, err)
	}
	_, err := core.InTx(ctx, c, op, func(tx *core.Txn) (struct{}, error) { return struct{}{}, puts.put(ctx, tx) })
	return err
}

// Declare stores the schedules of a set, when a program starts: new schedules are created, changed schedules are changed as
// by [Put], and schedules missing from the set are removed or paused, as Vanished says. Any number of processes may call
// Declare at once. While two versions of a program run side by side, the last call counts, so call Declare only when a
// process starts.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention]. Transaction: a constant number of statements;
// locks the schedules of the set in the order of their names. Safe to repeat: unchanged schedules are not written.
func Declare(ctx context.Context, eng *engine.Engine, set Set) (Declared, error) {
	const op = "declare schedules"
	c := core.Of(eng)
	puts := batch{c: c}
	if err := puts.addSet(&set); err != nil {
		return Declared{}, core.Wrap(op, err)
	}
	if err := puts.plan(ctx); err != nil {
		return Declared{}, core.Wrap(op, err)
	}
	return core.InTx(ctx, c, op, func(tx *core.Txn) (Declared, error) {
		names := slices.Clone(puts.params.Names)
		known, err := c.Q.LockDeclaredSchedules(ctx, tx, db.LockDeclaredSchedulesParams{
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
			_, err = c.Q.PauseSchedules(ctx, tx, db.PauseSchedulesParams{
				Namespace: string(set.Namespace), Names: gone.Vanished, NowMs: c.NowMs(), Reason: "no longer declared by " + set.Name, Vanished: true,
			})
		} else {
			_, err = c.Q.DropSchedules(ctx, tx, db.DropSchedulesParams{Namespace: string(set.Namespace), Names: gone.Vanished})
		}
		return gone, err
	})
}

// Delete deletes a schedule. The executions stay.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one statement; locks the
// schedule.
func Delete(ctx context.Context, eng *engine.Engine, schedule Name) error {
	const op = "delete schedule"
	c := core.Of(eng)
	if err := schedule.check(c); err != nil {
		return core.Wrap(op, err)
	}
	n, err := core.InStatement(ctx, c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return c.Q.DropSchedules(ctx, conn, db.DropSchedulesParams{Namespace: string(schedule.Namespace), Names: []string{schedule.Name}})
	})
	if err == nil && n == 0 {
		err = core.Wrap(op, schedule.notFound())
	}
	return err
}

// batch has schedules to create or change, in the order of names.
type batch struct {
	c        *core.Core
	params   db.PutSchedulesParams
	times    []schedules.Times
	specs    []engine.ExecutionSpec
	register func(context.Context, db.DBTX) error // registers lanes and limits named by the executions
}

// addSet checks a set, fills in defaults, and adds the schedules.
func (p *batch) addSet(set *Set) (err error) {
	if set.Namespace, err = p.c.NamespaceOr(set.Namespace); err != nil {
		return err
	}
	switch {
	case set.Name == "":
		return core.Invalid("Name", "is empty")
	case set.Vanished != RemoveVanished && set.Vanished != PauseVanished:
		return core.Invalid("Vanished", fmt.Sprintf("%q is neither RemoveVanished nor PauseVanished", set.Vanished))
	case len(set.Schedules) > MaxSet:
		return core.Invalid("Schedules", fmt.Sprintf("are %d, limit %d", len(set.Schedules), MaxSet))
	}
	if err := core.CheckText("Name", set.Name, MaxName); err != nil {
		return err
	}
	p.params.Namespace, p.params.DeclaredBy = string(set.Namespace), set.Name
	sorted := slices.SortedFunc(slices.Values(set.Schedules), func(a, b Spec) int { return cmp.Compare(a.Name, b.Name) })
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
func (p *batch) add(s Spec, set string) error {
	times, t, err := s.check(p.c)
	if err != nil {
		return err
	}
	tags, err := tagsOf(t.Tags)
	if err != nil {
		return core.InvalidBecause("Execution.Tags", err)
	}
	budgets := make([]string, len(t.Budgets))
	for i, budget := range t.Budgets {
		budgets[i] = budget.String()
	}
	var quota pgtype.UUID
	if t.QuotaPolicy != nil {
		quota = pgtype.UUID{Bytes: *t.QuotaPolicy, Valid: true}
	}
	p.times, p.specs = append(p.times, times), append(p.specs, s.Execution)
	a := &p.params
	a.Namespace, a.DeclaredBy = string(s.Namespace), set
	a.Names = append(a.Names, s.Name)
	a.Crons, a.TimeZones, a.EverysMs = append(a.Crons, s.Cron), append(a.TimeZones, s.Zone), append(a.EverysMs, s.Every.Milliseconds())
	a.JittersMs, a.StartsMs, a.EndsMs = append(a.JittersMs, times.JitterMs), append(a.StartsMs, times.StartMs), append(a.EndsMs, times.EndMs)
	a.Missed, a.WindowsMs = append(a.Missed, string(s.Missed)), append(a.WindowsMs, s.Window.Milliseconds())
	a.OverlapRules = append(a.OverlapRules, string(s.Overlap))
	a.Kinds, a.LaneIDs = append(a.Kinds, t.Kind), append(a.LaneIDs, t.Lane)
	a.Payloads, a.PayloadEncodings = append(a.Payloads, t.Payload), append(a.PayloadEncodings, t.PayloadEncoding)
	a.Priorities, a.Creators = append(a.Priorities, t.Priority), append(a.Creators, t.Creator)
	a.Policies, a.Tags = append(a.Policies, t.Policy), append(a.Tags, tags)
	a.UniqueWorks, a.Sequences = append(a.UniqueWorks, t.Unique), append(a.Sequences, t.Sequence)
	a.BudgetIDs, a.Limits, a.Fairs = append(a.BudgetIDs, strings.Join(budgets, ",")), append(a.Limits, t.Limits), append(a.Fairs, t.Fair)
	a.QuotaPolicyIDs = append(a.QuotaPolicyIDs, quota)
	return nil
}

// plan looks up the limits of the executions and computes the next ticks from now on. It runs before the transaction, because
// the search for a tick may take long.
func (p *batch) plan(ctx context.Context) (err error) {
	if len(p.times) == 0 {
		return nil
	}
	if p.register, err = core.CreatorOf[engine.ExecutionSpec](p.c).Register(ctx, p.specs); err != nil {
		return err
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
		tick := p.times[i].Next(now)
		p.params.TicksMs = append(p.params.TicksMs, tick)
		p.params.NextsMs = append(p.params.NextsMs, p.times[i].Due(tick))
	}
	return nil
}

// put writes the schedules. Lanes are registered now, so that a tick never waits for another transaction registering the same
// lane.
func (p *batch) put(ctx context.Context, tx *core.Txn) error {
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
	return p.register(ctx, tx)
}

// keepDue keeps the last due tick of each schedule whose times are about to change, so that the tick is not lost.
func (p *batch) keepDue(ctx context.Context, tx *core.Txn) error {
	rows, err := p.c.Q.LockDueSchedules(ctx, tx, db.LockDueSchedulesParams{
		Namespace: p.params.Namespace, Names: p.params.Names, NowMs: p.params.NowMs,
	})
	if err != nil {
		return err
	}
	moves := schedules.NewMoves(len(rows))
	moves.AfterMs = p.params.NowMs
	for i := range rows {
		row := db.FfxSchedule(rows[i])
		n, _ := slices.BinarySearch(p.params.Names, row.Name)
		a := &p.params
		key := schedules.Key{Cron: a.Crons[n], Zone: a.TimeZones[n], EveryMs: a.EverysMs[n], StartMs: a.StartsMs[n]}
		if schedules.KeyOf(&row) == key && row.JitterMs == a.JittersMs[n] && row.EndMs == a.EndsMs[n] {
			continue
		}
		times, err := schedules.TimesOf(&row)
		if err != nil { // written by a newer version
			continue
		}
		acts := times.KeepLast(&row, a.NowMs)
		if len(acts) > 0 {
			last := &acts[len(acts)-1]
			row.LastTickMs, row.LastAtMs, row.LastOutcome, row.LastError = &last.TickMs, &a.NowMs, last.Outcome, ""
			row.Recent = schedules.WithRecent(row.Recent, a.NowMs, acts)
		}
		moves.Add(&row)
	}
	if len(moves.Names) == 0 {
		return nil
	}
	_, err = p.c.Q.MoveSchedules(ctx, tx, moves.MoveSchedulesParams)
	return err
}
