package upkeep

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// The sources of executions for retention, each with a row in ffx_retention.
const (
	fromEnds   = "ends"
	fromTimers = "timers"
	fromSweep  = "sweep"
	fromFlows  = "flows"

	countsMembers = "members" // a row counting the members deleted with their flows

	retentionSources = 5
)

// Subjects of retention's timers.
const (
	timedExecutions = "execution"
	timedFlows      = "flow"
)

const (
	comeBackSoon = time.Minute // for locked subjects, and needed ones that ended recently
	comeBackLate = time.Hour   // for subjects needed for long
)

// Retain deletes ended executions after their retention, with their attempts, output, grants, suspensions, waitpoints
// and budget usage, which stays charged. The retention is the policy's ([policy.Execution]), or else the lane's
// ([operator.SetLaneRetention]), or else [engine.Config.Retention]. Members go with their flow ([Upkeep.PurgeFlows])
// unless [engine.FlowSpec.PruneMembersAfter] is set, events by [Upkeep.TrimOutboxes]. See docs/retention.md for the
// rules. A called execution ([engine.Engine.Call]) is kept until the caller has stored the result or has ended.
//
// It examines up to batch executions in the order of their ends, and about as many with due timers, and returns how
// many it examined. [operator.Retention] returns the progress.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement if nothing is due, otherwise one transaction for ends and
// one for timers; locks the executions to delete and skips locked ones. Commits don't wait for the disk, since lost
// deletions are repeated. Emits nothing. Safe to repeat and to run in any number of processes; one works at a time.
func (u *Upkeep) Retain(ctx context.Context, batch int) (int, error) {
	const op = "retain"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	work, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, _ *core.Notifications) (db.GetRetentionWorkRow, error) {
		return u.c.Q.GetRetentionWork(ctx, conn, db.GetRetentionWorkParams{LookAfterMs: u.c.LookAfterMs(), NowMs: u.c.NowMs()})
	})
	if err != nil {
		return 0, err
	}
	if work.Sources < retentionSources {
		if begun, err := u.ensureRetentionSources(ctx, op); err != nil || !begun {
			return 0, err
		}
		work.EndsDue = true
	}
	looked := 0
	if work.TimersDue {
		n, _, err := u.retain(ctx, op, fromTimers, func(tx *core.Txn, r *retaining) error { return r.takeTimers(ctx, tx, batch) })
		if looked += n; err != nil {
			return looked, err
		}
	}
	if work.EndsDue {
		n, _, err := u.retain(ctx, op, fromEnds, func(tx *core.Txn, r *retaining) error {
			return r.listEnds(ctx, tx, work.LookAfterMs, batch)
		})
		if looked += n; err != nil {
			return looked, err
		}
	}
	return looked, nil
}

// ensureRetentionSources creates retention's rows, unless another process is creating them.
func (u *Upkeep) ensureRetentionSources(ctx context.Context, op string) (bool, error) {
	_, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, _ *core.Notifications) (struct{}, error) {
		return struct{}{}, u.c.Q.EnsureRetentionSources(ctx, conn)
	})
	if errors.Is(err, fferr.ErrBusy) {
		return false, nil
	}
	return err == nil, err
}

// retaining is one batch of retention.
type retaining struct {
	*Upkeep
	source  string
	eventID int64 // position of the source
	nowMs   int64
	looked  core.ExecutionArrays
	timers  retentionTimers
	flows   *core.FlowSet // of ended members
	deleted int64
	waits   int // for locks no statement can skip
}

// retain deletes the due executions among the ones collected by find. It returns how many it examined and how many it
// deleted. After a lock that no statement can skip, it starts again and leaves out locked executions.
func (u *Upkeep) retain(
	ctx context.Context, op, source string, find func(*core.Txn, *retaining) error,
) (looked, deleted int, err error) {
	done, err := u.deleteAlone(ctx)
	if err != nil {
		return 0, 0, core.Wrap(op, err)
	}
	defer done()
	try := func(careful bool) (*retaining, error) {
		return core.InTx(ctx, u.c, op, func(tx *core.Txn) (*retaining, error) {
			r := &retaining{Upkeep: u, source: source, flows: core.NewFlowSet(u.c.Partitions)}
			held, err := r.begin(ctx, tx)
			if err != nil || !held {
				return r, err
			}
			if err := find(tx, r); err != nil {
				return nil, err
			}
			if err := r.work(ctx, tx, careful); err != nil {
				return nil, err
			}
			return r, r.end(ctx, tx)
		})
	}
	r, err := try(false)
	if errors.Is(err, fferr.ErrBusy) || u.c.Tx != nil && pgtx.SQLState(err) == core.SQLLockNotAvailable {
		r, err = try(true)
	}
	if err != nil {
		return 0, 0, err
	}
	if u.c.Tx == nil {
		u.noted.add(r.flows)
	}
	return len(r.looked.Executions), int(r.deleted), nil
}

// deleteAlone waits until no other call of this process deletes in bulk. A bulk deletion keeps a core of the server
// busy, and claims need the others. In a caller's transaction there is no wait.
func (u *Upkeep) deleteAlone(ctx context.Context) (done func(), err error) {
	if u.c.Tx != nil {
		return func() {}, nil
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case u.deleting <- struct{}{}:
		return func() { <-u.deleting }, nil
	}
}

// begin locks the source, and reports success.
func (r *retaining) begin(ctx context.Context, tx *core.Txn) (bool, error) {
	var held bool
	steps := []core.Step{func(conn db.DBTX) error {
		row, err := r.c.Q.TakeRetentionSource(ctx, conn, db.TakeRetentionSourceParams{Source: r.source, NowMs: r.c.NowMs()})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		held, r.eventID, r.nowMs = err == nil, row.EventID, row.NowMs
		return err
	}}
	if r.c.Tx == nil {
		steps = append(steps, func(conn db.DBTX) error { return r.c.Q.CommitLazily(ctx, conn) })
	}
	err := pgtx.InOneTrip(ctx, tx, steps...)
	return held, err
}

// listEnds adds the next ends to looked, up to the first one that is too recent.
func (r *retaining) listEnds(ctx context.Context, tx *core.Txn, lookAfterMs int64, batch int) error {
	rows, err := r.c.Q.ListEnds(ctx, tx, db.ListEndsParams{
		AfterEventID: r.eventID, UpToMs: r.nowMs - lookAfterMs, NowMs: r.nowMs, PageSize: int32(batch),
	})
	for _, row := range rows {
		r.looked.Add(row.PartitionKey, row.ExecutionID.Bytes)
		r.eventID = row.EventID
	}
	return err
}

// takeTimers adds the subjects of the next timers to looked.
func (r *retaining) takeTimers(ctx context.Context, tx *core.Txn, batch int) error {
	rows, err := r.c.Q.TakeRetentionTimers(ctx, tx, db.TakeRetentionTimersParams{
		Subject: timedExecutions, NowMs: r.nowMs, MaxItems: int64(batch),
	})
	for _, row := range rows {
		r.looked.Add(row.PartitionKey, row.ID.Bytes)
	}
	return err
}

// ended is an execution to delete.
type ended struct {
	partition int16
	execution id.ExecutionUUID
	flow      *id.FlowID
	pruned    bool // to delete before the flow
	endedAtMs int64
}

// work deletes the due executions among the examined ones, and sets timers for the others unless kept forever.
func (r *retaining) work(ctx context.Context, tx *core.Txn, careful bool) error {
	if r.looked.Empty() {
		return nil
	}
	rows, err := r.c.Q.TakeEnded(ctx, tx, db.TakeEndedParams{
		PartitionKeys: r.looked.Partitions, ExecutionIDs: r.looked.Executions,
		DefaultMs: core.RetentionMs(r.c.Retention), NowMs: r.nowMs, AheadDue: r.source == fromTimers,
	})
	if err != nil {
		return err
	}
	due := make([]ended, 0, len(rows))
	for _, row := range rows {
		dueMs := r.dueMs(row.TerminalAtMs, row.RetentionMs)
		if row.InFlow && r.source != fromSweep && !r.noted.has(*row.FlowID) {
			r.flows.Add(*row.FlowID)
		}
		switch {
		case row.RetentionMs == core.Forever || dueMs == core.Forever:
		case dueMs > r.nowMs:
			r.timers.add(r.nowMs, dueMs, row.PartitionKey, row.ExecutionID)
		case row.Awaited:
			r.comeBack(comeBackIn(r.nowMs-row.TerminalAtMs), row.PartitionKey, row.ExecutionID)
		case !row.Taken:
			r.comeBack(comeBackSoon, row.PartitionKey, row.ExecutionID)
		default:
			due = append(due, ended{row.PartitionKey, row.ExecutionID.Bytes, row.FlowID, row.InFlow, row.TerminalAtMs})
		}
	}
	if due, err = r.holdPruned(ctx, tx, due); err != nil || len(due) == 0 {
		return err
	}
	if due, err = r.leaveNeeded(ctx, tx, due); err != nil || len(due) == 0 {
		return err
	}
	slices.SortFunc(due, func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), bytes.Compare(a.execution[:], b.execution[:]))
	})
	used, err := r.c.Q.GetRetainedTables(ctx, tx)
	if err != nil {
		return err
	}
	if used.StreamFrames {
		if due, err = r.shortenDue(ctx, tx, due); err != nil || len(due) == 0 {
			return err
		}
	}
	return r.drop(ctx, tx, due, used, careful)
}

// dueMs returns when to delete an execution. If the end is in the future, by a clock that was ahead, the retention
// starts with the first check, and the execution is due at the next check, by the timer that the first one sets.
func (r *retaining) dueMs(endedAtMs, keepMs int64) int64 {
	if endedAtMs > r.nowMs {
		if r.source == fromTimers {
			return r.nowMs
		}
		endedAtMs = r.nowMs
	}
	return endedAtMs + min(keepMs, core.Forever-max(endedAtMs, 0))
}

// comeBack sets a timer, except in a sweep, which will examine the execution again.
func (r *retaining) comeBack(in time.Duration, partition int16, execution pgtype.UUID) {
	if r.source != fromSweep {
		r.timers.add(r.nowMs, r.nowMs+in.Milliseconds(), partition, execution)
	}
}

// holdPruned locks the flows of due executions to delete before their flow, so that their dependents are not replayed
// or extended concurrently. It removes executions of locked flows from due. Members can still complete.
func (r *retaining) holdPruned(ctx context.Context, tx *core.Txn, due []ended) ([]ended, error) {
	flows := core.NewFlowSet(r.c.Partitions)
	for _, x := range due {
		if x.pruned {
			flows.Admit(x.flow)
		}
	}
	if flows.Empty() {
		return due, nil
	}
	if err := r.c.TryFlowsShared(ctx, tx, flows); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(due, func(x ended) bool {
		held := x.pruned && !flows.Has(*x.flow)
		if held {
			r.comeBack(comeBackSoon, x.partition, core.PgUUID(x.execution))
		}
		return held
	}), nil
}

// leaveNeeded removes still needed members from due.
func (r *retaining) leaveNeeded(ctx context.Context, tx *core.Txn, due []ended) ([]ended, error) {
	var members core.ExecutionArrays
	var flows []pgtype.UUID
	for _, x := range due {
		if x.flow != nil {
			members.Add(x.partition, x.execution)
			flows = append(flows, core.PgUUID(*x.flow))
		}
	}
	if members.Empty() {
		return due, nil
	}
	listed, err := r.c.Q.ListNeeded(ctx, tx, db.ListNeededParams{
		PartitionKeys: members.Partitions, ExecutionIDs: members.Executions, FlowIDs: flows,
	})
	if err != nil {
		return nil, err
	}
	undispatched, err := r.c.Q.ListUndispatched(ctx, tx, members.Executions)
	if err != nil {
		return nil, err
	}
	needed := make(map[id.ExecutionUUID]bool, len(listed))
	for _, x := range listed {
		needed[x.Bytes] = true
	}
	for _, x := range undispatched {
		needed[x] = true
	}
	return slices.DeleteFunc(due, func(x ended) bool {
		if needed[x.execution] {
			r.comeBack(comeBackIn(r.nowMs-x.endedAtMs), x.partition, core.PgUUID(x.execution))
		}
		return needed[x.execution]
	}), nil
}

// comeBackIn returns the time until the next check of a needed subject that ended ageMs ago: an eighth of the age,
// within bounds.
func comeBackIn(ageMs int64) time.Duration {
	age := min(ageMs/8, comeBackLate.Milliseconds())
	return max(time.Duration(age)*time.Millisecond, comeBackSoon)
}

// drop deletes locked executions with all their data. If careful, after a lock that no statement can skip, it deletes
// each half separately, so that only locked executions are left.
func (r *retaining) drop(ctx context.Context, tx *core.Txn, due []ended, used db.GetRetainedTablesRow, careful bool) error {
	if !careful {
		return r.dropAll(ctx, tx, due, used)
	}
	_, err := pgtx.InSavepoint(ctx, tx, func(savepoint pgx.Tx) (struct{}, error) {
		return struct{}{}, r.dropAll(ctx, savepoint, due, used)
	})
	if pgtx.SQLState(err) != core.SQLLockNotAvailable {
		return err
	}
	if r.waits++; len(due) == 1 || r.waits >= core.LateWaits {
		for _, x := range due {
			r.comeBack(comeBackSoon, x.partition, core.PgUUID(x.execution))
		}
		return nil
	}
	if err := r.drop(ctx, tx, due[:len(due)/2], used, careful); err != nil {
		return err
	}
	return r.drop(ctx, tx, due[len(due)/2:], used, careful)
}

func (r *retaining) dropAll(ctx context.Context, tx pgx.Tx, due []ended, used db.GetRetainedTablesRow) error {
	var arrays, pruned core.ExecutionArrays
	for _, x := range due {
		arrays.Add(x.partition, x.execution)
		if x.pruned {
			pruned.Add(x.partition, x.execution)
		}
	}
	var steps []core.Step
	if !pruned.Empty() {
		steps = append(steps, func(conn db.DBTX) error {
			return r.c.Q.InsertPrunedMembers(ctx, conn, db.InsertPrunedMembersParams{
				PartitionKeys: pruned.Partitions, ExecutionIDs: pruned.Executions,
			})
		})
	}
	var dropped int64
	if err := pgtx.InOneTrip(ctx, tx, append(steps, r.c.DropEnded(ctx, arrays, used, &dropped)...)...); err != nil {
		return err
	}
	r.deleted += dropped
	return nil
}

// end stores the source's position and the timers.
func (r *retaining) end(ctx context.Context, tx *core.Txn) error {
	if r.looked.Empty() {
		return nil
	}
	steps := r.timers.steps(ctx, r.c.Q, timedExecutions)
	if !r.flows.Empty() {
		keys, ids := r.flows.Arrays()
		steps = append(steps, func(conn db.DBTX) error {
			return r.c.Q.InsertRetentionTimer(ctx, conn, db.InsertRetentionTimerParams{
				DueAtMs: r.nowMs, Subject: timedFlows, PartitionKeys: keys, IDs: ids,
			})
		})
	}
	return pgtx.InOneTrip(ctx, tx, append(steps, func(conn db.DBTX) error {
		return r.c.Q.MoveRetentionSource(ctx, conn, db.MoveRetentionSourceParams{
			Source: r.source, EventID: r.eventID, Deleted: r.deleted, NowMs: r.nowMs,
		})
	})...)
}

// retentionTimers are the times of further checks, grouped by due time.
type retentionTimers struct {
	due map[int64]*core.ExecutionArrays
}

// add rounds the due time up, by a 256th of the remaining time and at most a minute, to let many subjects share a
// timer.
func (t *retentionTimers) add(nowMs, dueMs int64, partition int16, subject pgtype.UUID) {
	width := min(max((dueMs-nowMs)/256, 1000), 60_000)
	if dueMs < core.Forever-width {
		dueMs = (dueMs + width - 1) / width * width
	}
	if t.due == nil {
		t.due = make(map[int64]*core.ExecutionArrays)
	}
	group := t.due[dueMs]
	if group == nil {
		group = new(core.ExecutionArrays)
		t.due[dueMs] = group
	}
	group.AddUUID(partition, subject)
}

// steps returns the statements for setting the timers.
func (t *retentionTimers) steps(ctx context.Context, q *db.Queries, subject string) []core.Step {
	var steps []core.Step
	for dueMs, group := range t.due {
		for from := 0; from < len(group.Executions); from += engine.MaxBatch {
			to := min(from+engine.MaxBatch, len(group.Executions))
			steps = append(steps, func(conn db.DBTX) error {
				return q.InsertRetentionTimer(ctx, conn, db.InsertRetentionTimerParams{
					DueAtMs: dueMs, Subject: subject, PartitionKeys: group.Partitions[from:to], IDs: group.Executions[from:to],
				})
			})
		}
	}
	return steps
}
