package upkeep

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

const (
	// Limits per call of DispatchCompletions: how often to wait 50 ms for a locked row before skipping all locked rows,
	// and for how many locked flows to wait as long after everything else is done.
	maxRowWaits  = 16
	maxFlowWaits = 8
)

// DispatchCompletions resolves the dependents of completion events not marked as dispatched: events below 64 levels of
// skips, events whose dependents could not be decided because of an unknown stored policy or state, and events of
// FlowFabric. It returns how many events it dispatched. In a loop, call DispatchCompletions about once per second, and
// at once after [Upkeep.Undispatched], as package reconcile does. A failing event is logged once and retried after a
// second, later down to once per minute.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per flow and 64 levels of skips, and one for events without
// dependents. Locks the flow (shared if all its events are successes that skip nothing, otherwise exclusively), the
// executions of the events, edge groups and dependents. Skips locked rows and flows for a later call, but waits 50 ms
// each for up to 16 rows and 8 flows; in a caller's transaction for rows only. Emits completion events. Safe to repeat
// and to run in any number of processes.
func (u *Upkeep) DispatchCompletions(ctx context.Context, batch int) (int, error) {
	const op = "dispatch completions"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	d := &dispatching{u: u.shortWait(), op: op, rowWaits: maxRowWaits}
	for after := int64(0); d.done < batch; {
		events, err := u.c.Q.ScanUndispatched(ctx, u.c.Reader(), db.ScanUndispatchedParams{
			AfterEventID: after, PageSize: int32(batch),
		})
		if err != nil {
			return d.done, core.Wrap(op, err)
		}
		if len(events) == 0 {
			u.stalled.forget()
			break
		}
		after = events[len(events)-1].EventID
		if err := d.page(ctx, events); err != nil {
			return d.done, err
		}
	}
	if u.c.Tx == nil {
		for _, events := range d.busy {
			if err := d.flow(ctx, events, core.MaxSkipLevels, true); err != nil {
				return d.done, err
			}
		}
	}
	if d.done == 0 {
		return 0, d.failed
	}
	return d.done, nil
}

// Undispatched returns a channel that receives a value after this engine has committed a transaction of its own with
// work for [Upkeep.DispatchCompletions]. The channel buffers one value, and each value goes to one receiver. Work from
// other processes or callers' transactions sends no value, so also call DispatchCompletions from time to time.
func (u *Upkeep) Undispatched() <-chan struct{} { return u.c.Undispatched }

// dispatching is one call of [Upkeep.DispatchCompletions].
type dispatching struct {
	u    *Upkeep
	op   string
	done int

	rowWaits int
	busy     [][]db.ScanUndispatchedRow // events of locked flows, by flow: a random sample
	passed   int                        // number of locked flows
	failed   error                      // the first error of a failing event
}

// page dispatches the events without possible dependents together, and the others flow by flow.
func (d *dispatching) page(ctx context.Context, events []db.ScanUndispatchedRow) error {
	var alone db.ClaimCompletionsParams
	var flows [][]db.ScanUndispatchedRow
	at := make(map[id.FlowID]int)
	for _, event := range events {
		_, completes := normalise.CompletionOutcome(event.Outcome)
		switch {
		case event.FlowID == nil || !completes:
			alone.PartitionKeys = append(alone.PartitionKeys, event.PartitionKey)
			alone.EventIDs = append(alone.EventIDs, event.EventID)
		case !d.u.stalled.waits(event.EventID):
			i, ok := at[*event.FlowID]
			if !ok {
				i = len(flows)
				at[*event.FlowID] = i
				flows = append(flows, nil)
			}
			flows[i] = append(flows[i], event)
		}
	}
	if len(alone.EventIDs) > 0 {
		n, err := core.InStatement(ctx, d.u.c, d.op, func(conn db.DBTX, _ *core.Notifications) (int, error) {
			alone.NowMs = d.u.c.NowMs()
			claimed, err := d.u.c.Q.ClaimCompletions(ctx, conn, alone)
			return len(claimed), err
		})
		if err != nil {
			return err
		}
		d.done += n
	}
	for _, events := range flows {
		if err := d.flow(ctx, events, core.MaxSkipLevels, false); err != nil {
			return err
		}
	}
	return nil
}

// flow dispatches the events of one flow in one transaction, down to the given number of levels, and skips the events
// of a locked flow. After a locked row or a failing event, it retries with smaller parts until everything else is done.
func (d *dispatching) flow(ctx context.Context, events []db.ScanUndispatchedRow, levels int, waits bool) error {
	result, err := core.InTx(ctx, d.u.c, d.op, func(tx *core.Txn) (dispatched, error) {
		return d.transaction(ctx, tx, events, levels, waits, !succeeded(events))
	})
	if errors.Is(err, core.ErrFlowLock) {
		result, err = core.InTx(ctx, d.u.c, d.op, func(tx *core.Txn) (dispatched, error) {
			return d.transaction(ctx, tx, events, levels, waits, true)
		})
	}
	switch {
	case err == nil:
		d.done += result.done
		for _, event := range result.left {
			d.stall(event, core.ErrUndecided)
		}
		return nil
	case errors.Is(err, core.ErrFlowBusy):
		if !waits {
			d.setAside(events)
		}
		return nil
	case d.u.c.Tx != nil || ctx.Err() != nil:
		return err
	case errors.Is(err, fferr.ErrBusy), errors.Is(err, fferr.ErrContention):
		d.rowWaits--
	case !core.IsDataError(err):
		return err
	case len(events) == 1 && levels == 1:
		d.stall(events[0], err)
		d.failed = cmp.Or(d.failed, err)
	}
	switch {
	case len(events) > 1:
		half := len(events) / 2
		if err := d.flow(ctx, events[:half], levels, waits); err != nil {
			return err
		}
		return d.flow(ctx, events[half:], levels, waits)
	case levels > 1:
		return d.flow(ctx, events, 1, waits)
	}
	return nil
}

// setAside keeps the events of a locked flow for a later try, which waits.
func (d *dispatching) setAside(events []db.ScanUndispatchedRow) {
	d.passed++
	if len(d.busy) < maxFlowWaits {
		d.busy = append(d.busy, events)
	} else if i := rand.IntN(d.passed); i < maxFlowWaits {
		d.busy[i] = events
	}
}

func (d *dispatching) stall(event db.ScanUndispatchedRow, err error) {
	if d.u.stalled.note(event.EventID) {
		d.u.c.Log.Warn("dependents of an execution can't be decided and will be retried: repair the row that the error names", "error", err,
			"execution", id.ExecutionIDFromRow(event.PartitionKey, event.ExecutionID), "event", event.EventID)
	}
}

// dispatched is the result of dispatching events of one flow.
type dispatched struct {
	done int
	left []db.ScanUndispatchedRow // events with undecided dependents
}

// transaction locks the flow, the executions and the events, and resolves the dependents. The error is core.ErrFlowLock
// if some dependents may only be resolved under the flow's exclusive lock.
func (d *dispatching) transaction(
	ctx context.Context, tx *core.Txn, events []db.ScanUndispatchedRow, levels int, waits, exclusive bool,
) (result dispatched, err error) {
	u := d.u
	if d.rowWaits <= 0 && u.c.Tx == nil {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '1ms'"); err != nil {
			return result, err
		}
	}
	if err := d.lockFlow(ctx, tx, *events[0].FlowID, waits, exclusive); err != nil {
		return result, err
	}
	upstreams, nowMs, err := d.claim(ctx, tx, events)
	if err != nil {
		return result, err
	}
	type sameOutcome struct {
		events []db.ScanUndispatchedRow
		ended  []core.EndedExecution
	}
	var endings []sameOutcome
	var leave db.LeaveCompletionsParams
	open := func(event db.ScanUndispatchedRow) {
		leave.PartitionKeys = append(leave.PartitionKeys, event.PartitionKey)
		leave.EventIDs = append(leave.EventIDs, event.EventID)
	}
	for i, event := range events {
		switch undone := upstreams[i]; {
		case !undone.claimed:
		case !undone.taken:
			open(event)
		case undone.replayed:
			result.done++ // the next end counts instead
		default:
			x := core.EndedExecution{
				ID:   id.ExecutionIDFromRow(event.PartitionKey, event.ExecutionID),
				Flow: event.FlowID, Outcome: completionOf(event), Exclusive: exclusive,
			}
			n := slices.IndexFunc(endings, func(s sameOutcome) bool { return s.ended[0].Outcome == x.Outcome })
			if n < 0 {
				n, endings = len(endings), append(endings, sameOutcome{})
			}
			endings[n].events = append(endings[n].events, event)
			endings[n].ended = append(endings[n].ended, x)
		}
	}
	var skipped []core.EndedExecution
	if exclusive {
		var ended []core.EndedExecution
		for _, s := range endings {
			ended = append(ended, s.ended...)
		}
		if skipped, err = u.recountUnsound(ctx, tx, ended, levels-1, nowMs); err != nil {
			return result, err
		}
	}
	for _, s := range endings {
		all, err := u.c.ResolveAll(ctx, tx, s.ended, levels, nowMs)
		if err != nil {
			return result, err
		}
		for i, event := range s.events {
			if all[i].Left {
				if !exclusive {
					return result, core.ErrFlowLock
				}
				result.left = append(result.left, event)
				open(event)
			} else {
				result.done++
			}
		}
		skipped = append(skipped, all[len(s.ended):]...)
	}
	if len(leave.EventIDs) > 0 {
		if err := u.c.Q.LeaveCompletions(ctx, tx, leave); err != nil {
			return result, err
		}
	}
	if len(skipped) > 0 {
		tx.Due.Completions()
	}
	return result, u.c.Record(ctx, tx, skipped, nowMs)
}

// lockFlow locks a flow, or returns core.ErrFlowBusy. Successes of a flow share the lock.
func (d *dispatching) lockFlow(ctx context.Context, tx *core.Txn, flow id.FlowID, waits, exclusive bool) (err error) {
	set := core.NewFlowSet(d.u.c.Partitions)
	set.Add(flow)
	switch {
	case !waits:
		err = d.u.c.HoldFlows(ctx, tx, set, exclusive)
	case exclusive:
		err = d.u.c.LockFlowsExclusive(ctx, tx, set)
	default:
		err = pgtx.InOneTrip(ctx, tx, d.u.c.ShareFlows(ctx, set)...)
	}
	if set.Empty() && err == nil || waits && pgtx.SQLState(err) == core.SQLLockNotAvailable {
		return core.ErrFlowBusy
	}
	return err
}

// succeeded reports whether all events are successes.
func succeeded(events []db.ScanUndispatchedRow) bool {
	return !slices.ContainsFunc(events, func(event db.ScanUndispatchedRow) bool {
		return completionOf(event) != state.CompletionSuccess
	})
}

func completionOf(event db.ScanUndispatchedRow) state.CompletionOutcome {
	outcome, _ := normalise.CompletionOutcome(event.Outcome)
	return state.TerminalOutcome(outcome).Completion()
}

// upstream reports whether the transaction has claimed an event and locked its execution.
type upstream struct {
	taken, replayed, claimed bool
}

// claim locks the executions of events and marks the events as dispatched, both without waiting.
func (d *dispatching) claim(
	ctx context.Context, tx *core.Txn, events []db.ScanUndispatchedRow,
) (upstreams []upstream, nowMs int64, err error) {
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(events[a].PartitionKey, events[b].PartitionKey),
			core.CompareUUID(events[a].ExecutionID, events[b].ExecutionID),
		)
	})
	var take db.TakeUpstreamsParams
	claim := db.ClaimCompletionsParams{NowMs: d.u.c.NowMs()}
	for _, i := range order {
		take.PartitionKeys = append(take.PartitionKeys, events[i].PartitionKey)
		take.ExecutionIDs = append(take.ExecutionIDs, core.PgUUID(events[i].ExecutionID))
		take.Ords = append(take.Ords, int32(i))
	}
	at := make(map[int64]int, len(events))
	for i, event := range events {
		at[event.EventID] = i
		claim.PartitionKeys = append(claim.PartitionKeys, event.PartitionKey)
		claim.EventIDs = append(claim.EventIDs, event.EventID)
	}
	var taken []db.TakeUpstreamsRow
	var claimed []db.ClaimCompletionsRow
	err = pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) (err error) { taken, err = d.u.c.Q.TakeUpstreams(ctx, conn, take); return err },
		func(conn db.DBTX) (err error) { claimed, err = d.u.c.Q.ClaimCompletions(ctx, conn, claim); return err },
	)
	upstreams = make([]upstream, len(events))
	for _, row := range taken {
		upstreams[row.Ord].taken, upstreams[row.Ord].replayed = row.Taken, row.Replayed
	}
	for _, row := range claimed {
		upstreams[at[row.EventID]].claimed = true
		nowMs = row.NowMs
	}
	return upstreams, nowMs, err
}

const (
	firstStall = time.Second
	maxStall   = time.Minute
	maxStalled = 10_000
)

// stalledEvents has the failing completion events, and when to retry each. It only affects the pace of this process.
type stalledEvents struct {
	mu     sync.Mutex
	events map[int64]*stalledEvent
}

type stalledEvent struct {
	pause time.Duration
	until time.Time
}

// waits reports whether a retry of an event would be too early.
func (s *stalledEvents) waits(event int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stalled, ok := s.events[event]
	return ok && time.Now().Before(stalled.until)
}

// note records a fruitless try, and reports whether there was none before.
func (s *stalledEvents) note(event int64) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stalled, ok := s.events[event]
	switch {
	case !ok && len(s.events) == maxStalled:
		return false
	case !ok:
		if s.events == nil {
			s.events = make(map[int64]*stalledEvent)
		}
		stalled = new(stalledEvent)
		s.events[event] = stalled
	}
	stalled.pause = min(max(2*stalled.pause, firstStall), maxStall)
	stalled.until = time.Now().Add(stalled.pause)
	return !ok
}

// forget drops entries without a retry when due: their events have been dispatched.
func (s *stalledEvents) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for event, stalled := range s.events {
		if time.Since(stalled.until) > maxStall {
			delete(s.events, event)
		}
	}
}
