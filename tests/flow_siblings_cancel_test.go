package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// cancelSiblings does what is left of sibling cancels to do, on so many groups.
func (f *flowFixture) cancelSiblings(t *testing.T, groups int) {
	t.Helper()
	run(t, f.Maintenance().CancelSiblings, groups)
}

func (f *flowFixture) wantReason(t *testing.T, flow id.FlowID, reason string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		row := storedRow(t, f.pool, "ff_exec_core", "execution_id = $1", f.NodeID(flow, key).UUID())
		if row["cancellation_reason"] != reason || row["cancelled_by"] != "engine" {
			t.Errorf("%s is cancelled for %v by %v", key, row["cancellation_reason"], row["cancelled_by"])
		}
	}
}

// F26: what remains is cancelled, whether the group was satisfied or has become impossible, and says which.
func TestF26_siblings_are_cancelled(t *testing.T) {
	t.Parallel()
	t.Run("satisfied", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, cancelRemaining("e", 2), "a>e", "b>e", "c>e", "d>e", "x>d", "e>next")
		f.succeed(t, flow, "a", "b")
		held := f.leases[f.NodeID(flow, "c")]
		f.cancelSiblings(t, 1)
		f.wantMembers(t, flow, map[string]string{
			stateCompleted: "a b", stateCancelled: "c d", stateRunning: "x", stateReady: "e", stateHeld: "next",
		})
		f.wantReason(t, flow, "sibling_quorum_satisfied", "c", "d")
		f.wantGroup(t, flow, "e", storedGroup{Success: 2, Fail: 2, KTarget: 2})
		f.wantEvents(t, held.Execution, "lease acquired", "lease revoked reconciler", "completion cancelled")
		if err := f.CompleteExecution(t.Context(), held, nil); !errors.Is(err, engine.ErrStaleLease) {
			t.Errorf("the holder completes: %v, want %v", err, engine.ErrStaleLease)
		}
		f.cancelSiblings(t, 0)
	})
	t.Run("impossible", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, cancelRemaining("d", 3), "a>d", "b>d", "c>d", "d>e")
		f.fail(t, flow, "a")
		f.cancelSiblings(t, 1)
		f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateCancelled: "b c", stateSkipped: "d e"})
		f.wantReason(t, flow, "sibling_quorum_impossible", "b", "c")
		f.wantGroup(t, flow, "d", storedGroup{Fail: 3, KTarget: 3})
	})
	t.Run("not_where_they_may_run", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, when{"d": policy.AnyOf(policy.LetRun)}, "a>d", "b>d", "a>e", "c>e")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.fail(t, flow, "c")
		f.cancelSiblings(t, 0)
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateFailed: "c", stateRunning: "b", stateReady: "d", stateSkipped: "e"})
	})
	t.Run("ended_meanwhile", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d", "c>d")
		f.succeed(t, flow, "a")
		f.succeed(t, flow, "b")
		f.cancelSiblings(t, 1)
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a b", stateCancelled: "c", stateReady: "d"})
	})
}

// F28: an upstream that another undecided group needs is spared, then and when it is listed all the same.
func TestF28_siblings_needed_elsewhere_survive(t *testing.T) {
	t.Parallel()
	t.Run("by_one_that_waits", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d", "c>d", "b>other", "x>other")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.cancelSiblings(t, 1)
		f.wantMembers(t, flow, map[string]string{
			stateCompleted: "a", stateRunning: "b x", stateCancelled: "c", stateReady: "d", stateHeld: "other",
		})
	})
	t.Run("by_one_that_runs", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d", "b>other")
		l := f.early(t, flow, "other") // and will wait for b
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.cancelSiblings(t, 1)
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateRunning: "b other", stateReady: "d"})
		f.wantWaiting(t, l, engine.WaitingParked)
	})
	t.Run("not_by_one_that_has_ended", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d", "b>other")
		f.claimAll(t)
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: f.NodeID(flow, "other")}); err != nil {
			t.Fatal(err)
		}
		f.succeed(t, flow, "a")
		f.cancelSiblings(t, 1)
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateCancelled: "b other", stateReady: "d"})
	})
	// Each of two groups that are decided at the same time sees the other as it was.
	t.Run("not_by_one_decided_at_the_same_time", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, when{"d": policy.AnyOf(policy.CancelRemaining), "e": policy.AnyOf(policy.CancelRemaining)},
			"a>d", "b>d", "b>e", "c>e")
		f.claimAll(t)
		first, second := f.begin(t), f.begin(t)
		if err := f.WithTx(first).CompleteExecution(t.Context(), f.lease(t, flow, "a"), nil); err != nil {
			t.Fatal(err)
		}
		if err := f.WithTx(second).CompleteExecution(t.Context(), f.lease(t, flow, "c"), nil); err != nil {
			t.Fatal(err)
		}
		commit(t, first)
		commit(t, second)
		if d, e := f.groups(t, flow)["d"], f.groups(t, flow)["e"]; d.Siblings+e.Siblings != "" {
			t.Fatalf("listed %q and %q: the test does not meet the case", d.Siblings, e.Siblings)
		}
		f.cancelSiblings(t, 2)
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a c", stateCancelled: "b", stateReady: "d e"})
	})
}

// F29: the statements do not depend on how many siblings there are.
func TestF29_sibling_cancels_take_constant_statements(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	log := new(statementLog)
	f.Engine = f.engineOn(t, log.open(t, f.url), engine.Config{})
	var counts [][]string
	for _, n := range []int{10, 1000} {
		spec := wide(n, true)
		spec.Nodes[1].When = policy.AnyOf(policy.CancelRemaining)
		flow := f.createFlow(t, spec)
		f.claimAll(t)
		f.succeed(t, flow, "up0")
		counts = append(counts, names(log.during(func() { f.cancelSiblings(t, 1) })))
		f.wantGroup(t, flow, "end", storedGroup{Success: 1, Fail: n - 1, KTarget: 1})
	}
	if !slices.Equal(counts[0], counts[1]) {
		t.Errorf("few take %q, many %q", counts[0], counts[1])
	}
	t.Logf("statements: %q", counts[0])
}

// What is listed without need is taken off the list, and nobody is cancelled for it.
func TestCancelSiblings_without_need(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*flowFixture, *testing.T, id.FlowID){
		"not_flagged": func(f *flowFixture, t *testing.T, flow id.FlowID) {
			f.setGroup(t, flow, "d", "cancel_siblings_pending_flag = false")
		},
		"no_group": func(f *flowFixture, t *testing.T, flow id.FlowID) {
			f.exec(t, "DELETE FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
		},
		"no_flow": func(f *flowFixture, t *testing.T, flow id.FlowID) {
			f.exec(t, "DELETE FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
			f.exec(t, "DELETE FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
		},
		"undecided_again": func(f *flowFixture, t *testing.T, flow id.FlowID) { f.replay(t, f.NodeID(flow, "a")) },
	} {
		t.Run(name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d")
			f.claimAll(t)
			f.succeed(t, flow, "a")
			prepare(f, t, flow)
			f.cancelSiblings(t, 1)
			f.wantState(t, f.NodeID(flow, "b"), stateRunning)
			if got := f.groups(t, flow)["d"]; got.Flagged || got.Siblings != "" {
				t.Errorf("group %+v", got)
			}
			if rows := texts(t, f.pool, "SELECT flow_id::text FROM ff_pending_cancel_groups"); len(rows) > 0 {
				t.Errorf("still listed: %q", rows)
			}
		})
	}
	t.Run("nobody_can_say", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.setGroup(t, flow, "d", `policy = '{"kind": "lottery"}'`)
		f.cancelSiblings(t, 0)
		f.wantState(t, f.NodeID(flow, "b"), stateRunning)
		f.setGroup(t, flow, "d", `policy = '{"kind": "any_of"}'`)
		f.cancelSiblings(t, 1)
		f.wantState(t, f.NodeID(flow, "b"), stateCancelled)
	})
}

// What somebody holds is left for a later call, whatever it is, and hides nothing else.
func TestCancelSiblings_passes_over(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"flow":    "SELECT pg_advisory_xact_lock(ffx_flow_key($1)) WHERE $2::uuid IS NOT NULL AND $3::uuid IS NOT NULL",
		"list":    "SELECT FROM ff_pending_cancel_groups WHERE flow_id = $1 AND downstream_eid = $2 AND $3::uuid IS NOT NULL FOR UPDATE",
		"group":   "SELECT FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = $2 AND $3::uuid IS NOT NULL FOR UPDATE",
		"sibling": "SELECT FROM ff_exec_core WHERE flow_id = $1 AND $2::uuid IS NOT NULL AND execution_id = $3 FOR UPDATE",
		"attempt": "SELECT FROM ff_attempt WHERE $1::uuid IS NOT NULL AND $2::uuid IS NOT NULL AND execution_id = $3 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			var flows [2]id.FlowID
			for i := range flows {
				flows[i] = f.draw(t, cancelRemaining("d", 1), "a>d", "b>d")
				f.claimAll(t)
				f.succeed(t, flows[i], "a")
				f.advance(time.Second)
			}
			tx := f.begin(t)
			execIn(t, tx, hold, flows[0], f.NodeID(flows[0], "d").UUID(), f.NodeID(flows[0], "b").UUID())
			f.cancelSiblings(t, 1)
			f.wantState(t, f.NodeID(flows[0], "b"), stateRunning)
			f.wantState(t, f.NodeID(flows[1], "b"), stateCancelled)
			commit(t, tx)
			f.cancelSiblings(t, 1)
			f.wantState(t, f.NodeID(flows[0], "b"), stateCancelled)
		})
	}
}

// It is part of the caller's transaction.
func TestCancelSiblings_in_a_transaction(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d")
	f.claimAll(t)
	f.succeed(t, flow, "a")
	before := f.dumpFlow(t, flow)
	for _, commits := range []bool{false, true} {
		tx := f.begin(t)
		m := f.WithTx(tx).Maintenance()
		if _, err := m.CancelSiblings(t.Context(), 0); !errors.Is(err, engine.ErrInvalidInput) {
			t.Errorf("no batch: %v", err)
		}
		if n, err := m.CancelSiblings(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if commits {
			commit(t, tx)
			break
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := f.dumpFlow(t, flow); after != before {
			t.Errorf("the flow was written to:\n%s\nwas\n%s", after, before)
		}
	}
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateCancelled: "b", stateReady: "d"})
}

// A flow whose members complete all the time does not keep its siblings: several drains at once, one effect each.
func TestCancelSiblings_of_a_busy_flow(t *testing.T) {
	r := newRacers(t, 8)
	const groups, workers = 20, 4
	var parts []string
	rules := when{}
	for i := range groups {
		d := fmt.Sprintf("d%d", i)
		rules[d] = policy.AnyOf(policy.CancelRemaining)
		parts = append(parts, fmt.Sprintf("a%d>%s", i, d), fmt.Sprintf("b%d>%[2]s", i, d), fmt.Sprintf("c%d>%[2]s", i, d))
	}
	for i := range 400 {
		parts = append(parts, fmt.Sprintf("busy%d", i))
	}
	flow := r.draw(t, rules, parts...)
	r.claimAll(t)
	var first []string
	for i := range groups {
		first = append(first, fmt.Sprintf("a%d", i))
	}
	r.succeed(t, flow, first...)
	var operations []func(context.Context) error
	for w := range workers {
		var mine []engine.Lease
		for i := w; i < 400; i += workers {
			mine = append(mine, r.lease(t, flow, fmt.Sprintf("busy%d", i)))
		}
		operations = append(operations, func(ctx context.Context) error {
			for _, l := range mine {
				if err := r.complete(ctx, l); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 2 {
		operations = append(operations, func(ctx context.Context) error {
			for {
				if _, err := r.rivals.Maintenance().CancelSiblings(ctx, 5); err != nil {
					return err
				}
				var left int
				if err := r.pool.QueryRow(ctx, "SELECT count(*) FROM ff_pending_cancel_groups").Scan(&left); err != nil || left == 0 {
					return err
				}
			}
		})
	}
	if err := together(t.Context(), operations...); err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for key, state := range r.members(t, flow) {
		counts[key[:1]+" "+state]++
	}
	wantEqual(t, "members", counts, map[string]int{
		"a " + stateCompleted: groups, "b " + stateCompleted: 400, "b " + stateCancelled: groups, "c " + stateCancelled: groups,
		"d " + stateReady: groups,
	})
	for key, g := range r.groups(t, flow) {
		if g != (storedGroup{Success: 1, Fail: 2, KTarget: 1}) {
			t.Errorf("group of %s: %+v", key, g)
		}
	}
	r.wantNoAborts(t)
}

// Background work of the process that decided a group cancels at once what the group does not need.
func TestCancelSiblings_at_once(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	dispatcherOnly(t, f.Engine)
	flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d")
	f.claimAll(t)
	f.succeed(t, flow, "a")
	await(t, "the sibling to be cancelled", func() bool { return f.stored(t, f.NodeID(flow, "b")).State == stateCancelled })
}
