package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Waiting is the result of waiting for upstreams.
type Waiting string

// The results.
const (
	WaitingParked  Waiting = "parked"  // until its upstreams have ended
	WaitingReady   Waiting = "ready"   // they have ended: any worker can continue it
	WaitingSkipped Waiting = "skipped" // they can't satisfy it any more, and it has ended
)

// WaitForChildren releases the attempt that l holds until the executions it depends on have ended as its group
// requires. Then the same attempt continues with the next claim. If they already have, it is claimable at once. If they
// no longer can, the execution is skipped, with all executions that can no longer run because of it. An execution
// without dependencies waits until it gets one, is cancelled, or its deadline passes.
//
// Errors: those of [Engine.DelayExecution].
//
// Transaction: a constant number of statements, plus one round per level of skipped executions. Locks a member's flow
// (shared, or exclusively if it is skipped), the execution, its attempt, then its group; waits for each up to two
// seconds, three times, then fails with [ErrContention]. Emits a lease event, and a completion event if it is skipped.
// Safe to repeat after an unknown outcome, except after [WaitingSkipped], when it fails with [ErrStaleLease].
func (e *Engine) WaitForChildren(ctx context.Context, l Lease) (Waiting, error) {
	results, err := e.waitForChildren(ctx, []Lease{l})
	if err != nil {
		return "", err
	}
	return results[0].Value, results[0].Err
}

// WaitForChildrenEach is [Engine.WaitForChildren] for many leases, [MaxBatch] per transaction. Outcomes are in input
// order; a lost lease affects only its own. The error means that nothing happened.
//
// It never waits for locks. If another transaction holds an execution, its attempt or group, its flow or a dependent,
// the outcome is [ErrBusy]; repeat that item.
func (e *Engine) WaitForChildrenEach(ctx context.Context, leases []Lease) ([]Outcome[Waiting], error) {
	return e.impatient().waitForChildren(ctx, leases)
}

func (e *Engine) waitForChildren(ctx context.Context, leases []Lease) ([]Outcome[Waiting], error) {
	lease := func(n int) *Lease { return &leases[n] }
	t := settlement(e, "wait for children", lease,
		func(x *heldLease) bool {
			return x.facts.AttemptOutcome == "waiting_children" && x.facts.LifecyclePhase != "active"
		},
		func(x *heldLease) Waiting {
			if x.facts.PublicState == "waiting_children" {
				return WaitingParked
			}
			return WaitingReady
		},
	)
	skips := make(map[int]bool) // items whose groups have become impossible
	t.needs = func(x *heldLease) flowLock {
		if skips[x.n] {
			return exclusiveFlow
		}
		return sharedFlow
	}
	t.write = func(ctx context.Context, tx *txn, items []*heldLease, outcomes []Outcome[Waiting]) error {
		return e.park(ctx, tx, items, skips, outcomes)
	}
	outcomes := make([]Outcome[Waiting], len(leases))
	valid := validItems(outcomes, func(n int) error { return e.checkLease(leases[n]) })
	flows := e.leases.flowsOf(len(leases), lease)
	chunks := leaseChunks(valid, lease, func(n int) *id.FlowID { return flows[n] }, func(int) int { return 0 })
	return outcomes, settle(ctx, t, lease, chunks, outcomes)
}

// park releases attempts until their upstreams have ended. It skips executions that can no longer run, once skips has
// them: their flows must be held exclusively.
func (e *Engine) park(ctx context.Context, tx *txn, items []*heldLease, skips map[int]bool, outcomes []Outcome[Waiting]) error {
	decisions, odd, err := e.decideGroupsOf(ctx, tx, items)
	if err != nil {
		return err
	}
	var back returning
	var impossible decidedArrays
	unlocked := false
	for _, x := range items {
		if err := odd[x.n]; err != nil {
			if len(items) == 1 {
				return err
			}
			outcomes[x.n].Err = err
			continue
		}
		waitsFor := waitsForChildren
		switch decisions[x.n] {
		case document.Undecided:
			outcomes[x.n].Value = WaitingParked
		case document.Satisfied:
			waitsFor, outcomes[x.n].Value = waitsForWorker, WaitingReady
		default:
			outcomes[x.n].Value = WaitingSkipped
			impossible.addGroup(*x.row.FlowID, x.id)
			unlocked = unlocked || !skips[x.n]
			skips[x.n] = true
		}
		back.add(x, waitsFor, 0)
	}
	if unlocked {
		return errFlowLock
	}
	if len(back.params.ExecutionIDs) == 0 {
		return nil
	}
	nowMs := items[0].facts.NowMs
	if err := e.returnLeases(ctx, tx, &back, nowMs); err != nil {
		return err
	}
	ended, err := e.skipDownstream(ctx, tx, impossible, nowMs)
	if err != nil {
		return err
	}
	return e.resolveAndRecord(ctx, tx, ended, nowMs)
}

// decideGroupsOf locks the groups of the members among items, and then reads their decisions, by position in the
// input. odd has the errors of unreadable groups.
func (e *Engine) decideGroupsOf(
	ctx context.Context, tx *txn, all []*heldLease,
) (decisions map[int]document.Decision, odd map[int]error, err error) {
	var members flowMemberArrays
	var items []int
	for _, x := range all {
		if flow := x.row.FlowID; flow != nil {
			members.addMember(x.id, flow)
			items = append(items, x.n)
		}
	}
	if members.empty() {
		return nil, nil, nil
	}
	decisions, odd = make(map[int]document.Decision, len(items)), make(map[int]error)
	var rows []db.ReadGroupsOfRow
	if err := pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			return e.q.LockGroupsOf(ctx, conn, db.LockGroupsOfParams{
				PartitionKeys: members.partitions, FlowIDs: members.flows, ExecutionIDs: members.executions,
			})
		},
		func(conn db.DBTX) (err error) {
			rows, err = e.q.ReadGroupsOf(ctx, conn, db.ReadGroupsOfParams{
				PartitionKeys: members.partitions, FlowIDs: members.flows, ExecutionIDs: members.executions, Ords: members.ords(),
			})
			return err
		},
	); err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		rules, err := document.GroupFromStored(row.Policy)
		if err != nil {
			odd[items[row.Ord]] = corrupt("ff_edge_group.policy", err)
			continue
		}
		decisions[items[row.Ord]] = rules.Decide(row.SuccessCount, row.FailCount, row.SkipCount, row.RunningCount, row.StagedCount)
	}
	return decisions, odd, nil
}
