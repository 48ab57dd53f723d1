package flows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// succeeding are the ways in which a success takes the lock of its flow. A process that did not claim the execution
// does not know of the flow, and so cannot take the fast path.
var succeeding = []struct {
	name     string
	stranger bool
	do       func(context.Context, *engine.Engine, engine.Lease) error
}{
	{"by the fast path", false, fixture.CompleteOne},
	{"by the slow path", true, fixture.CompleteOne},
	{"in a batch by the fast path", false, completeInBatch},
	{"in a batch by the slow path", true, completeInBatch},
}

func completeInBatch(ctx context.Context, e *engine.Engine, l engine.Lease) error {
	outcomes, err := e.CompleteExecutions(ctx, []engine.Completion{{Lease: l}})
	if err != nil {
		return err
	}
	return outcomes[0]
}

// A member succeeds in a transaction that stays open. Another member of the flow then succeeds, unless something
// depends on both.
func TestConcurrentSuccessesOfAFlowNeverWait(t *testing.T) {
	for _, first := range succeeding {
		for _, second := range succeeding {
			for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
				t.Run(fmt.Sprintf("%s, %s, then %s", level, first.name, second.name), func(t *testing.T) {
					f := fixture.NewFlows(t)
					flow := f.Draw(t, nil, "a>x", "b>y", "c", "d")
					f.ClaimAll(t)
					stranger := f.Rival(t)
					of := func(unknown bool) *engine.Engine {
						if unknown {
							return stranger.Engine
						}
						return f.Engine
					}
					for _, pair := range [][2]string{{"a", "b"}, {"c", "d"}} {
						tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
						if err := first.do(t.Context(), of(first.stranger).WithTx(tx), f.Lease(t, flow, pair[0])); err != nil {
							t.Fatal(err)
						}
						if err := second.do(t.Context(), of(second.stranger), f.Lease(t, flow, pair[1])); err != nil {
							t.Errorf("%s beside %s: %v", pair[1], pair[0], err)
						}
						fixture.Commit(t, tx)
					}
					f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b c d", fixture.StateReady: "x y"})
				})
			}
		}
	}
}

// Two transactions of callers go on side by side, too.
func TestConcurrentSuccessesInTransactionsNeverWait(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		for _, way := range succeeding {
			t.Run(fmt.Sprintf("%s, %s", level, way.name), func(t *testing.T) {
				f := fixture.NewFlows(t)
				flow := f.Draw(t, nil, "a>x", "b>y")
				f.ClaimAll(t)
				eng := f.Engine
				if way.stranger {
					eng = f.Rival(t).Engine
				}
				first, second := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level}), fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
				fixture.ExecIn(t, second, "SET LOCAL lock_timeout = '2s'")
				if err := way.do(t.Context(), eng.WithTx(first), f.Lease(t, flow, "a")); err != nil {
					t.Fatal(err)
				}
				if err := way.do(t.Context(), eng.WithTx(second), f.Lease(t, flow, "b")); err != nil {
					t.Error(err)
				}
				fixture.Commit(t, second)
				fixture.Commit(t, first)
				f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b", fixture.StateReady: "x y"})
			})
		}
	}
}

// A process that claimed an execution outside a flow foresees no lock for its failure. If the execution has joined a flow
// since, the rows show it, and the failure begins again with the flow's lock.
func TestFailureOfAnExecutionThatJoinedAFlowSinceItsClaim(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "up>down", "sibling")
	up := f.NodeID(flow, "up")
	f.SetExecution(t, up, "flow_id = NULL")
	log := new(fixture.StatementLog)
	claimer := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	claimed, err := claimer.Claim(t.Context(), f.Worker(), 2)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(claimed, func(c engine.Claimed) bool { return c.ID == up })
	f.Exec(t, "UPDATE ff_exec_core SET flow_id = $3 WHERE partition_key = $1 AND execution_id = $2", up.Partition(), up.UUID(), flow)
	sent := fixture.Names(log.During(func() {
		if _, err := claimer.FailExecution(t.Context(), claimed[i].Lease, fixture.ForGood); err != nil {
			t.Fatal(err)
		}
	}))
	if first, again := slices.Index(sent, "LockExecutions"), slices.Index(sent, "ReadRetryFacts"); first < 0 || again < first {
		t.Errorf("sends %q, want that it locks, and foresees afterwards", sent)
	}
	f.WantState(t, up, fixture.StateFailed)
	f.WantState(t, f.NodeID(flow, "down"), fixture.StateSkipped)
}

// An execution that joins a flow after its failure was foreseen to need no lock is failed under the flow's lock, which
// a success of another member has.
func TestFailureRacesJoiningAFlow(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch %t", batch), func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "up>down", "sibling")
			up := f.NodeID(flow, "up")
			f.SetExecution(t, up, "flow_id = NULL")
			l, other := f.Lease(t, flow, "up"), f.Lease(t, flow, "sibling")
			statement := "LockExecutions"
			if batch {
				statement = "TakeExecutions"
			}
			late := f.StoppedBefore(t, statement)
			fail := func(ctx context.Context) error {
				if !batch {
					_, err := late.FailExecution(ctx, l, fixture.ForGood)
					return err
				}
				outcomes, err := fixture.FailBatch(ctx, late.Engine, []engine.Lease{l}, fixture.ForGood)
				return errors.Join(append(outcomes, err)...)
			}
			returned, wait := fixture.Watched(t, fail)
			late.AwaitStop(t)
			f.Exec(t, "UPDATE ff_exec_core SET flow_id = $3 WHERE partition_key = $1 AND execution_id = $2", up.Partition(), up.UUID(), flow)
			tx := f.BeginTx(t)
			if err := f.WithTx(tx).CompleteExecution(t.Context(), other, nil); err != nil {
				t.Fatal(err)
			}
			was := f.Dump(t, up)
			late.Resume()
			if batch {
				if err := wait(); !errors.Is(err, fferr.ErrBusy) {
					t.Errorf("got %v, want that the flow is busy", err)
				}
				f.WantUnchanged(t, up, was)
				fixture.Commit(t, tx)
				if err := fail(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				late.AwaitBlockedOr(t, f.Fixture, returned)
				f.WantUnchanged(t, up, was)
				fixture.Commit(t, tx)
				if err := wait(); err != nil {
					t.Fatal(err)
				}
			}
			f.WantState(t, up, fixture.StateFailed)
			f.WantState(t, f.NodeID(flow, "down"), fixture.StateSkipped)
		})
	}
}

// Groups are locked in one order, across all flows of a partition: a waiting statement holds the groups before the
// one it waits for, and none after it.
func TestResolveLocksGroupsInOrder(t *testing.T) {
	f := fixture.NewFlows(t)
	var flows [2]id.FlowID
	var downstream []id.ExecutionUUID
	for i := range flows {
		spec := fixture.Chart(nil, "a>w", "a>x", "a>y", "a>z")
		for i > 0 && fixture.PartitionOf(spec.ID) != fixture.PartitionOf(flows[0]) {
			spec.ID = id.NewFlowID()
			copy(spec.ID[:6], flows[0][:6]) // of one instant, so that the ids of their nodes mingle
		}
		flows[i] = f.NewFlowOf(t, spec)
		for _, key := range []string{"w", "x", "y", "z"} {
			downstream = append(downstream, f.NodeID(flows[i], key).UUID())
		}
	}
	slices.SortFunc(downstream, func(a, b id.ExecutionUUID) int { return bytes.Compare(a[:], b[:]) })
	completions := []engine.Completion{{Lease: f.Lease(t, flows[1], "a")}, {Lease: f.Lease(t, flows[0], "a")}}
	const lock = "SELECT FROM ff_edge_group WHERE partition_key = $1 AND downstream_eid = $2 FOR UPDATE"
	for at, held := range downstream {
		holder := f.BeginTx(t)
		fixture.ExecIn(t, holder, lock, fixture.PartitionOf(flows[0]), held)
		late := f.Rival(t)
		tx := fixture.BeginWith(t, late.Pool, pgx.TxOptions{})
		wait := fixture.Async(t, func(ctx context.Context) error {
			outcomes, err := late.WithTx(tx).CompleteExecutions(ctx, completions)
			return errors.Join(append(outcomes, err)...)
		})
		late.AwaitBlocked(t, f.Fixture)
		probe := f.BeginTx(t)
		free := fixture.All[struct{ DownstreamEID id.ExecutionUUID }](t, probe, `
			SELECT downstream_eid FROM ff_edge_group
			WHERE partition_key = $1 AND flow_id = ANY ($2::uuid[]) FOR UPDATE SKIP LOCKED`, fixture.PartitionOf(flows[0]), flows[:])
		for i, x := range downstream {
			isFree := slices.ContainsFunc(free, func(row struct{ DownstreamEID id.ExecutionUUID }) bool { return row.DownstreamEID == x })
			if isFree != (i > at) {
				t.Errorf("while it waits for group %d, group %d is free: %t", at, i, isFree)
			}
		}
		fixture.Commit(t, probe)
		fixture.Commit(t, holder)
		if err := wait(); err != nil {
			t.Error(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
