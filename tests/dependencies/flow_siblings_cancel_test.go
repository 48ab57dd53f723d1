package dependencies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// cancelSiblings does the pending sibling cancels of so many groups.
func cancelSiblings(t *testing.T, f *fixture.Flows, groups int) {
	t.Helper()
	fixture.Run(t, upkeep.Of(f.Engine).CancelSiblings, groups)
}

func wantReason(t *testing.T, f *fixture.Flows, flow id.FlowID, reason string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		row := fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", f.NodeID(flow, key).UUID())
		if row["cancellation_reason"] != reason || row["cancelled_by"] != "engine" {
			t.Errorf("%s is cancelled for %v by %v", key, row["cancellation_reason"], row["cancelled_by"])
		}
	}
}

// F26: the remaining upstreams are cancelled, whether the group was satisfied or has become impossible, and named.
func TestCancelSiblingsCancelsTheRest_F26(t *testing.T) {
	t.Parallel()
	t.Run("satisfied", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.CancelRemaining("e", 2), "a>e", "b>e", "c>e", "d>e", "x>d", "e>next")
		f.Succeed(t, flow, "a", "b")
		held := f.Leases[f.NodeID(flow, "c")]
		cancelSiblings(t, f, 1)
		f.WantMembers(t, flow, map[string]string{
			fixture.StateCompleted: "a b", fixture.StateCancelled: "c d", fixture.StateRunning: "x", fixture.StateReady: "e", fixture.StateHeld: "next",
		})
		wantReason(t, f, flow, "sibling_quorum_satisfied", "c", "d")
		f.WantGroup(t, flow, "e", fixture.StoredGroup{Success: 2, Fail: 2, KTarget: 2})
		f.WantEvents(t, held.Execution, "lease acquired", "lease revoked reconciler", "completion cancelled")
		if err := f.CompleteExecution(t.Context(), held, nil); !errors.Is(err, fferr.ErrStaleLease) {
			t.Errorf("the holder completes: %v, want %v", err, fferr.ErrStaleLease)
		}
		cancelSiblings(t, f, 0)
	})
	t.Run("impossible", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.CancelRemaining("d", 3), "a>d", "b>d", "c>d", "d>e")
		f.Fail(t, flow, "a")
		cancelSiblings(t, f, 1)
		f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateCancelled: "b c", fixture.StateSkipped: "d e"})
		wantReason(t, f, flow, "sibling_quorum_impossible", "b", "c")
		f.WantGroup(t, flow, "d", fixture.StoredGroup{Fail: 3, KTarget: 3})
	})
	t.Run("not_where_they_may_run", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.When{"d": policy.AnyOf(policy.LetRun)}, "a>d", "b>d", "a>e", "c>e")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		f.Fail(t, flow, "c")
		cancelSiblings(t, f, 0)
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateFailed: "c", fixture.StateRunning: "b", fixture.StateReady: "d", fixture.StateSkipped: "e"})
	})
	t.Run("ended_meanwhile", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d", "c>d")
		f.Succeed(t, flow, "a")
		f.Succeed(t, flow, "b")
		cancelSiblings(t, f, 1)
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b", fixture.StateCancelled: "c", fixture.StateReady: "d"})
	})
}

// F28: an upstream that another undecided group needs is spared, then and when it is listed all the same.
func TestCancelSiblingsSparesNeededUpstreams_F28(t *testing.T) {
	t.Parallel()
	t.Run("by_one_that_waits", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d", "c>d", "b>other", "x>other")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		cancelSiblings(t, f, 1)
		f.WantMembers(t, flow, map[string]string{
			fixture.StateCompleted: "a", fixture.StateRunning: "b x", fixture.StateCancelled: "c", fixture.StateReady: "d", fixture.StateHeld: "other",
		})
	})
	t.Run("by_one_that_runs", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d", "b>other")
		l := f.Early(t, flow, "other") // and will wait for b
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		cancelSiblings(t, f, 1)
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateRunning: "b other", fixture.StateReady: "d"})
		f.WantWaiting(t, l, engine.WaitingParked)
	})
	t.Run("not_by_one_that_has_ended", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d", "b>other")
		f.ClaimAll(t)
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: f.NodeID(flow, "other")}); err != nil {
			t.Fatal(err)
		}
		f.Succeed(t, flow, "a")
		cancelSiblings(t, f, 1)
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateCancelled: "b other", fixture.StateReady: "d"})
	})
	// Each of two groups that are decided at the same time sees the other as it was.
	t.Run("not_by_one_decided_at_the_same_time", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.When{"d": policy.AnyOf(policy.CancelRemaining), "e": policy.AnyOf(policy.CancelRemaining)},
			"a>d", "b>d", "b>e", "c>e")
		f.ClaimAll(t)
		first, second := f.BeginTx(t), f.BeginTx(t)
		if err := f.WithTx(first).CompleteExecution(t.Context(), f.Lease(t, flow, "a"), nil); err != nil {
			t.Fatal(err)
		}
		if err := f.WithTx(second).CompleteExecution(t.Context(), f.Lease(t, flow, "c"), nil); err != nil {
			t.Fatal(err)
		}
		fixture.Commit(t, first)
		fixture.Commit(t, second)
		if d, e := f.Groups(t, flow)["d"], f.Groups(t, flow)["e"]; d.Siblings+e.Siblings != "" {
			t.Fatalf("listed %q and %q: the test does not meet the case", d.Siblings, e.Siblings)
		}
		cancelSiblings(t, f, 2)
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a c", fixture.StateCancelled: "b", fixture.StateReady: "d e"})
	})
}

// F29: the statements do not depend on how many siblings there are.
func TestCancelSiblingsStatementsAreConstant_F29(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	log := new(fixture.StatementLog)
	f.Engine = f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	var counts [][]string
	for _, n := range []int{10, 1000} {
		spec := fixture.Wide(n, true)
		spec.Nodes[1].When = policy.AnyOf(policy.CancelRemaining)
		flow := f.NewFlowOf(t, spec)
		f.ClaimAll(t)
		f.Succeed(t, flow, "up0")
		counts = append(counts, fixture.Names(log.During(func() { cancelSiblings(t, f, 1) })))
		f.WantGroup(t, flow, "end", fixture.StoredGroup{Success: 1, Fail: n - 1, KTarget: 1})
	}
	if !slices.Equal(counts[0], counts[1]) {
		t.Errorf("few take %q, many %q", counts[0], counts[1])
	}
	t.Logf("statements: %q", counts[0])
}

// Needless entries are removed from the list, and no member is cancelled for them.
func TestCancelSiblingsDropsNeedlessEntries(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*fixture.Flows, *testing.T, id.FlowID){
		"not_flagged": func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
			f.SetGroup(t, flow, "d", "cancel_siblings_pending_flag = false")
		},
		"no_group": func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
			f.Exec(t, "DELETE FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
		},
		"no_flow": func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
			f.Exec(t, "DELETE FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
			f.Exec(t, "DELETE FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
		},
		"undecided_again": func(f *fixture.Flows, t *testing.T, flow id.FlowID) { f.Replay(t, f.NodeID(flow, "a")) },
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d")
			f.ClaimAll(t)
			f.Succeed(t, flow, "a")
			prepare(f, t, flow)
			cancelSiblings(t, f, 1)
			f.WantState(t, f.NodeID(flow, "b"), fixture.StateRunning)
			if got := f.Groups(t, flow)["d"]; got.Flagged || got.Siblings != "" {
				t.Errorf("group %+v", got)
			}
			if rows := fixture.Texts(t, f.Pool, "SELECT flow_id::text FROM ff_pending_cancel_groups"); len(rows) > 0 {
				t.Errorf("still listed: %q", rows)
			}
		})
	}
	t.Run("nobody_can_say", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		f.SetGroup(t, flow, "d", `policy = '{"kind": "lottery"}'`)
		cancelSiblings(t, f, 0)
		f.WantState(t, f.NodeID(flow, "b"), fixture.StateRunning)
		f.SetGroup(t, flow, "d", `policy = '{"kind": "any_of"}'`)
		cancelSiblings(t, f, 1)
		f.WantState(t, f.NodeID(flow, "b"), fixture.StateCancelled)
	})
}

// Locked rows of any kind are left for a later call, and hide nothing else.
func TestCancelSiblingsSkipsLockedRows(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"flow":    "SELECT pg_advisory_xact_lock(ffx_flow_key($1)) WHERE $2::uuid IS NOT NULL AND $3::uuid IS NOT NULL",
		"list":    "SELECT FROM ff_pending_cancel_groups WHERE flow_id = $1 AND downstream_eid = $2 AND $3::uuid IS NOT NULL FOR UPDATE",
		"group":   "SELECT FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = $2 AND $3::uuid IS NOT NULL FOR UPDATE",
		"sibling": "SELECT FROM ff_exec_core WHERE flow_id = $1 AND $2::uuid IS NOT NULL AND execution_id = $3 FOR UPDATE",
		"attempt": "SELECT FROM ff_attempt WHERE $1::uuid IS NOT NULL AND $2::uuid IS NOT NULL AND execution_id = $3 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			var flows [2]id.FlowID
			for i := range flows {
				flows[i] = f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d")
				f.ClaimAll(t)
				f.Succeed(t, flows[i], "a")
				f.Advance(time.Second)
			}
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, hold, flows[0], f.NodeID(flows[0], "d").UUID(), f.NodeID(flows[0], "b").UUID())
			cancelSiblings(t, f, 1)
			f.WantState(t, f.NodeID(flows[0], "b"), fixture.StateRunning)
			f.WantState(t, f.NodeID(flows[1], "b"), fixture.StateCancelled)
			fixture.Commit(t, tx)
			cancelSiblings(t, f, 1)
			f.WantState(t, f.NodeID(flows[0], "b"), fixture.StateCancelled)
		})
	}
}

// It is part of the caller's transaction.
func TestCancelSiblingsInATransaction(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d")
	f.ClaimAll(t)
	f.Succeed(t, flow, "a")
	before := f.DumpFlow(t, flow)
	for _, commits := range []bool{false, true} {
		tx := f.BeginTx(t)
		m := upkeep.Of(f.WithTx(tx))
		if _, err := m.CancelSiblings(t.Context(), 0); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("no batch: %v", err)
		}
		if n, err := m.CancelSiblings(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if commits {
			fixture.Commit(t, tx)
			break
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := f.DumpFlow(t, flow); after != before {
			t.Errorf("the flow was written to:\n%s\nwas\n%s", after, before)
		}
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateCancelled: "b", fixture.StateReady: "d"})
}

// A flow whose members complete all the time does not keep its siblings: several drains at once, one effect each.
func TestCancelSiblingsOfABusyFlow(t *testing.T) {
	r := fixture.NewRacers(t, 8)
	const groups, workers = 20, 4
	var parts []string
	rules := fixture.When{}
	for i := range groups {
		d := fmt.Sprintf("d%d", i)
		rules[d] = policy.AnyOf(policy.CancelRemaining)
		parts = append(parts, fmt.Sprintf("a%d>%s", i, d), fmt.Sprintf("b%d>%[2]s", i, d), fmt.Sprintf("c%d>%[2]s", i, d))
	}
	for i := range 400 {
		parts = append(parts, fmt.Sprintf("busy%d", i))
	}
	flow := r.Draw(t, rules, parts...)
	r.ClaimAll(t)
	var first []string
	for i := range groups {
		first = append(first, fmt.Sprintf("a%d", i))
	}
	r.Succeed(t, flow, first...)
	var operations []func(context.Context) error
	for w := range workers {
		var mine []engine.Lease
		for i := w; i < 400; i += workers {
			mine = append(mine, r.Lease(t, flow, fmt.Sprintf("busy%d", i)))
		}
		operations = append(operations, func(ctx context.Context) error {
			for _, l := range mine {
				if err := r.Complete(ctx, l); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 2 {
		operations = append(operations, func(ctx context.Context) error {
			for {
				if _, err := upkeep.Of(r.Rivals.Engine).CancelSiblings(ctx, 5); err != nil {
					return err
				}
				var left int
				if err := r.Pool.QueryRow(ctx, "SELECT count(*) FROM ff_pending_cancel_groups").Scan(&left); err != nil || left == 0 {
					return err
				}
			}
		})
	}
	if err := together(t.Context(), operations...); err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for key, state := range r.Members(t, flow) {
		counts[key[:1]+" "+state]++
	}
	fixture.WantEqual(t, "members", counts, map[string]int{
		"a " + fixture.StateCompleted: groups, "b " + fixture.StateCompleted: 400, "b " + fixture.StateCancelled: groups, "c " + fixture.StateCancelled: groups,
		"d " + fixture.StateReady: groups,
	})
	for key, g := range r.Groups(t, flow) {
		if g != (fixture.StoredGroup{Success: 1, Fail: 2, KTarget: 1}) {
			t.Errorf("group of %s: %+v", key, g)
		}
	}
	r.WantNoAborts(t)
}

// Background work of the process that decided a group cancels the upstreams it does not need at once.
func TestWorkerCancelsSiblingsImmediately(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	dispatcherOnly(t, f.Engine)
	flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d")
	f.ClaimAll(t)
	f.Succeed(t, flow, "a")
	fixture.Await(t, "the sibling to be cancelled", func() bool { return f.Stored(t, f.NodeID(flow, "b")).State == fixture.StateCancelled })
}
