package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Waiting is the result of [Engine.WaitForChildren].
type Waiting string

// The results.
const (
	WaitingParked  Waiting = "parked"  // the upstreams have not ended
	WaitingReady   Waiting = "ready"   // the upstreams have ended; any worker can continue
	WaitingSkipped Waiting = "skipped" // the upstreams can't satisfy the group; the execution has ended
)

// WaitForChildren releases the leased attempt until the upstreams of its execution have ended as the group requires.
// The same attempt continues with the next claim: at once if the upstreams have already ended. If the group can no
// longer be satisfied, the execution is skipped, with all dependents that can no longer run. An execution without
// upstreams waits until it gets one, is cancelled, or reaches its deadline.
//
// Errors: as [Engine.DelayExecution].
//
// Transaction: one. Locks a member's flow (shared, or exclusively to skip), the execution, its attempt, then its
// group; waits for each up to two seconds, three times, then [fferr.ErrContention]. Emits a lease event, and a
// completion event if skipped. Safe to repeat; after [WaitingSkipped] a repetition is [fferr.ErrStaleLease].
func (e *Engine) WaitForChildren(ctx context.Context, l Lease) (Waiting, error) {
	results, err := e.waitForChildren(ctx, []Lease{l})
	if err != nil {
		return "", err
	}
	return results[0].Value, results[0].Err
}

// WaitForChildrenEach is [Engine.WaitForChildren] for many leases, [MaxBatch] per transaction. Outcomes are in input
// order; a lost lease affects only its own. An item with locked rows gets [fferr.ErrBusy] at once. A returned error
// means nothing happened.
func (e *Engine) WaitForChildrenEach(ctx context.Context, leases []Lease) ([]fferr.Outcome[Waiting], error) {
	return e.shortWait().waitForChildren(ctx, leases)
}

func (e *Engine) waitForChildren(ctx context.Context, leases []Lease) ([]fferr.Outcome[Waiting], error) {
	lease := func(n int) id.Fence { return leases[n].Fence }
	t := core.Settlement(e.c, "wait for children", lease,
		func(x *core.HeldLease) bool {
			return x.Facts.AttemptOutcome == "waiting_children" && x.Facts.LifecyclePhase != "active"
		},
		func(x *core.HeldLease) Waiting {
			if x.Facts.PublicState == "waiting_children" {
				return WaitingParked
			}
			return WaitingReady
		},
	)
	skips := make(map[int]bool) // items whose groups have become impossible
	t.Needs = func(x *core.HeldLease) core.FlowLock {
		if skips[x.N] {
			return core.ExclusiveFlow
		}
		return core.SharedFlow
	}
	t.Write = func(ctx context.Context, tx *core.Txn, items []*core.HeldLease, outcomes []fferr.Outcome[Waiting]) error {
		return e.park(ctx, tx, items, leases, skips, outcomes)
	}
	outcomes := make([]fferr.Outcome[Waiting], len(leases))
	valid := core.ValidItems(outcomes, func(n int) error { return e.c.CheckLease(leases[n].Fence) })
	flows := e.c.Leases.FlowsOf(len(leases), lease)
	chunks := core.LeaseChunks(valid, lease, func(n int) *id.FlowID { return flows[n] }, func(int) int { return 0 })
	return outcomes, core.Settle(ctx, t, lease, chunks, outcomes)
}

// park releases attempts until their upstreams have ended, and skips executions that can no longer run. Their flows
// must be locked exclusively: park adds executions missing in skips, and then returns [core.ErrFlowLock].
func (e *Engine) park(
	ctx context.Context, tx *core.Txn, items []*core.HeldLease, leases []Lease, skips map[int]bool, outcomes []fferr.Outcome[Waiting],
) error {
	waiting, err := e.decideGroupsOf(ctx, tx, items)
	if err != nil {
		return err
	}
	var back returning
	var impossible core.DecidedArrays
	unlocked := false
	for _, x := range waiting {
		if x.unreadable != nil {
			if len(items) == 1 {
				return x.unreadable
			}
			outcomes[x.N].Err = x.unreadable
			continue
		}
		waitsFor := waitsForChildren
		switch x.decision {
		case document.Undecided:
			outcomes[x.N].Value = WaitingParked
		case document.Satisfied:
			waitsFor, outcomes[x.N].Value = waitsForWorker, WaitingReady
		default:
			outcomes[x.N].Value = WaitingSkipped
			impossible.AddGroup(*x.Row.FlowID, x.ID)
			unlocked = unlocked || !skips[x.N]
			skips[x.N] = true
		}
		back.add(x.HeldLease, waitsFor, 0, leases[x.N].Trace)
	}
	if unlocked {
		return core.ErrFlowLock
	}
	if len(back.params.ExecutionIDs) == 0 {
		return nil
	}
	nowMs := items[0].Facts.NowMs
	if err := e.returnLeases(ctx, tx, &back, nowMs); err != nil {
		return err
	}
	ended, err := e.c.SkipDownstream(ctx, tx, impossible, nowMs)
	if err != nil {
		return err
	}
	return e.c.ResolveAndRecord(ctx, tx, ended, nowMs)
}

// waitingLease is a lease to wait for its group.
type waitingLease struct {
	*core.HeldLease
	decision   document.Decision // Undecided outside a flow too
	unreadable error             // the error of an unreadable group
}

// decideGroupsOf locks the groups of leases, then reads their decisions.
func (e *Engine) decideGroupsOf(ctx context.Context, tx *core.Txn, items []*core.HeldLease) ([]waitingLease, error) {
	waiting := make([]waitingLease, len(items))
	var members core.FlowMemberArrays
	var inFlow []*waitingLease
	for i, x := range items {
		waiting[i].HeldLease = x
		if x.Row.FlowID != nil {
			members.AddMember(x.ID, x.Row.FlowID)
			inFlow = append(inFlow, &waiting[i])
		}
	}
	if members.Empty() {
		return waiting, nil
	}
	var rows []db.ReadGroupsOfRow
	err := pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			return e.c.Q.LockGroupsOf(ctx, conn, db.LockGroupsOfParams{
				PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions,
			})
		},
		func(conn db.DBTX) (err error) {
			rows, err = e.c.Q.ReadGroupsOf(ctx, conn, db.ReadGroupsOfParams{
				PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions, Ords: members.Ords(),
			})
			return err
		},
	)
	for _, row := range rows {
		x := inFlow[row.Ord]
		rules, err := document.GroupFromStored(row.Policy)
		if err != nil {
			x.unreadable = core.Corrupt("ff_edge_group.policy", err)
			continue
		}
		x.decision = rules.Decide(row.SuccessCount, row.FailCount, row.SkipCount, row.RunningCount, row.StagedCount)
	}
	return waiting, err
}
