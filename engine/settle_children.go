package engine

import (
	"context"
	"math"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Waiting is what became of an execution whose holder waits for its upstreams.
type Waiting string

// What may become of it.
const (
	WaitingParked  Waiting = "parked"  // until its upstreams have ended
	WaitingReady   Waiting = "ready"   // they have: any worker goes on with it
	WaitingSkipped Waiting = "skipped" // they cannot satisfy it any more, and it has ended
)

// WaitForChildren gives the attempt that l holds back, unfinished, until the executions that it depends on have ended as
// its group asks. Then the same attempt goes on with the next claim. Where that has come already it may be claimed at
// once, and where it cannot come any more the execution is skipped, with all that can no longer run because of it.
//
// What depends on nothing, as any execution outside a flow, waits until it is given something to depend on, is cancelled,
// or its deadline passes.
//
// Errors: those of [Engine.DelayExecution].
//
// Transaction: a constant number of statements, plus one round for each level of executions skipped. Locks the flow of a
// member, shared, exclusively where it is skipped, the execution, its attempt, then its group, and waits for each up to
// two seconds, three times; then [ErrContention]. Emits a lease event, and a completion event where it is skipped.
// Repeating it after an unknown outcome is safe, save after [WaitingSkipped]: that is refused with [ErrStaleLease].
func (e *Engine) WaitForChildren(ctx context.Context, l Lease) (Waiting, error) {
	results, err := e.waitForChildren(ctx, []Lease{l})
	if err != nil {
		return "", err
	}
	return results[0].Value, results[0].Err
}

// WaitForChildrenEach is [Engine.WaitForChildren] for many leases, [MaxBatch] to a transaction. Outcomes stand in input
// order; a lost lease affects only its own. The error means that nothing happened.
//
// It waits for nobody: what somebody else holds, the execution, its attempt or group, the lock of its flow or what
// depends on it, has the outcome [ErrBusy], and the caller repeats it.
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

// decideGroupsOf locks the groups of the members among the acting items, and then reads what each says. What cannot be
// read is odd.
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
			odd[items[row.Ord-1]] = corrupt("ff_edge_group.policy", err)
			continue
		}
		decisions[items[row.Ord-1]] = rules.Decide(row.SuccessCount, row.FailCount, row.SkipCount, row.RunningCount, row.StagedCount)
	}
	return decisions, odd, nil
}
