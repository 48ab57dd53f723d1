package engine

import (
	"context"
	"math"

	"github.com/flowfabric/flowfabric-go/db"
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
	return settleEach(ctx, e, "wait for children", len(leases), func(i int) *Lease { return &leases[i] }, settlingEach[Outcome[Waiting]]{
		errOf:  func(o Outcome[Waiting]) error { return o.Err },
		byFlow: true,
		settling: func([]int) settling[Outcome[Waiting]] {
			exclusive := false
			return settling[Outcome[Waiting]]{
				repeated: func(_ int, f *leaseFacts) bool {
					return f.AttemptOutcome == "waiting_children" && f.LifecyclePhase != "active"
				},
				again: func(facts *leaseFacts, first Outcome[Waiting]) Outcome[Waiting] {
					switch {
					case facts == nil:
						return first
					case facts.PublicState == "waiting_children":
						return Outcome[Waiting]{Value: WaitingParked}
					}
					return Outcome[Waiting]{Value: WaitingReady}
				},
				refused:   func(err error) Outcome[Waiting] { return Outcome[Waiting]{Err: err} },
				exclusive: &exclusive,
				write: func(tx *txn, batch *settlementBatch, results []Outcome[Waiting]) ([]endedExecution, error) {
					decisions, odd, err := e.decideGroupsOf(ctx, tx, batch)
					if err != nil {
						return nil, err
					}
					var back returning
					var impossible decidedArrays
					for _, n := range batch.acting {
						if err := odd[n]; err != nil {
							if len(batch.acting) == 1 {
								return nil, err
							}
							results[n].Err = err
							continue
						}
						waitsFor := waitsForChildren
						switch decisions[n] {
						case document.Undecided:
							results[n].Value = WaitingParked
						case document.Satisfied:
							waitsFor, results[n].Value = waitsForWorker, WaitingReady
						default:
							results[n].Value = WaitingSkipped
							impossible.executionArrays.add(batch.leases[n].Execution.Partition(), batch.leases[n].Execution.UUID())
							impossible.flows = append(impossible.flows, pgUUID(*batch.rows[n].FlowID))
							impossible.stagedFrom = append(impossible.stagedFrom, 0)
							impossible.stagedBelow = append(impossible.stagedBelow, math.MaxInt32)
						}
						back.add(batch, n, waitsFor, 0)
					}
					if !impossible.empty() && !exclusive {
						exclusive = true
						return nil, errFlowLock
					}
					if len(back.params.ExecutionIDs) == 0 {
						return nil, nil
					}
					if err := e.returnLeases(ctx, tx, &back, batch.nowMs); err != nil {
						return nil, err
					}
					return e.skipDownstream(ctx, tx, impossible, batch.nowMs)
				},
			}
		},
	})
}

// decideGroupsOf locks the groups of the members among the acting items, and then reads their decisions. odd has the
// errors of unreadable groups.
func (e *Engine) decideGroupsOf(
	ctx context.Context, tx *txn, batch *settlementBatch,
) (decisions map[int]document.Decision, odd map[int]error, err error) {
	var members flowMemberArrays
	var items []int
	for _, n := range batch.acting {
		if flow := batch.rows[n].FlowID; flow != nil {
			members.addMember(batch.leases[n].Execution, flow)
			items = append(items, n)
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
				PartitionKeys: members.partitions, FlowIDs: members.flows, ExecutionIDs: members.executions, Ords: ordsOf(items),
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
