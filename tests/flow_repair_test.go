package tests

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// endElsewhere ends a node as FlowFabric does, whose dispatcher has taken note of that, and done nothing more.
func (f *flowFixture) endElsewhere(t *testing.T, flow id.FlowID, key, outcome string, ago time.Duration) {
	t.Helper()
	x := f.NodeID(flow, key)
	public := outcome
	if outcome == "success" {
		public = "completed"
	}
	f.setExecution(t, x, fmt.Sprintf(`lifecycle_phase = 'terminal', ownership_state = 'unowned', eligibility_state = 'not_applicable', public_state = '%s',
		attempt_state = 'attempt_terminal', terminal_at_ms = %d`, public, f.now().Add(-ago).UnixMilli()))
	f.insert(t, "ff_completion_event", columns{
		"partition_key": x.Partition(), "execution_id": x.UUID(), "flow_id": flow, "outcome": outcome, "occurred_at_ms": 1, "dispatched_at_ms": 1,
	}, nil)
}

// F12: FlowFabric takes note of an end, and dies before it has counted it.
func TestF12_a_hop_lost_after_its_claim(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[string]struct {
		moved, edge string
		group       storedGroup
		events      []string
	}{
		"success": {stateReady, "satisfied success", storedGroup{Success: 1, KTarget: 1}, []string{"a success"}},
		"failed":  {stateSkipped, "impossible failed", storedGroup{Fail: 1, KTarget: 1}, []string{"a failed", "c skipped", "d skipped"}},
		"expired": {stateSkipped, "impossible expired", storedGroup{Fail: 1, KTarget: 1}, []string{"a expired", "c skipped", "d skipped"}},
		"skipped": {stateSkipped, "impossible skipped", storedGroup{Skip: 1, KTarget: 1}, []string{"a skipped", "c skipped", "d skipped"}},
	} {
		t.Run(outcome, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			flow := f.draw(t, nil, "a>c", "c>d")
			f.endElsewhere(t, flow, "a", outcome, 29*time.Second)
			run(t, f.Maintenance().RepairGroups, 0) // it may be about to count it
			f.wantGroup(t, flow, "c", storedGroup{Running: 1, KTarget: 1})
			f.advance(time.Second)
			run(t, f.Maintenance().RepairGroups, 1)
			f.wantState(t, f.NodeID(flow, "c"), want.moved)
			f.wantGroup(t, flow, "c", want.group)
			if got := f.edges(t, flow)["a>c"]; got != want.edge {
				t.Errorf("edge %s, want %s", got, want.edge)
			}
			f.wantCompletionEvents(t, flow, want.events...)
			before := f.dumpFlow(t, flow)
			run(t, f.Maintenance().RepairGroups, 0)
			if f.dumpFlow(t, flow) != before {
				t.Error("a second repair wrote something")
			}
		})
	}
}

// Of several upstreams each counts once: whatever counted it, and however that is marked.
func TestF12_F13_repair_counts_each_end_once(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>d", "b>d", "c>d", "e>d", "g>d")
	f.claimAll(t)
	f.succeed(t, flow, "a")
	f.succeed(t, flow, "b")
	f.forgetMarks(t, flow, "b") // counted elsewhere
	f.endElsewhere(t, flow, "c", "success", time.Minute)
	f.setExecution(t, f.NodeID(flow, "b"), "terminal_at_ms = 1")
	f.stageOnly(t, flow, "g", "d")
	run(t, f.Maintenance().RepairGroups, 1)
	f.wantGroup(t, flow, "d", storedGroup{Success: 3, Running: 1, KTarget: 4})
	f.wantState(t, f.NodeID(flow, "d"), stateHeld)
	wantEqual(t, "edges", f.edges(t, flow), map[string]string{
		"a>d": "satisfied success", "b>d": "satisfied success", "c>d": "satisfied success", "e>d": "applied", "g>d": "pending",
	})
	f.succeed(t, flow, "e")
	f.wantState(t, f.NodeID(flow, "d"), stateHeld) // the staged edge holds it
}

// What some dispatcher is still going to count is left to it.
func TestRepairGroups_leaves_what_is_undispatched(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>c", "b>c")
	f.setExecution(t, f.NodeID(flow, "a"), endedElsewhere)
	f.foreignEvent(t, f.NodeID(flow, "a"), &flow, "success")
	run(t, f.Maintenance().RepairGroups, 0)
	f.wantGroup(t, flow, "c", storedGroup{Running: 2, KTarget: 2})
	run(t, f.Maintenance().DispatchCompletions, 1)
	f.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
	run(t, f.Maintenance().RepairGroups, 0)
}

// A group that is decided although its downstream still waits is acted upon.
func TestRepairGroups_moves_what_waits_for_nothing(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>b", "b>c", "x>y")
	f.succeed(t, flow, "a")
	f.fail(t, flow, "x")
	for _, key := range []string{"b", "y"} {
		f.setExecution(t, f.NodeID(flow, key), `lifecycle_phase = 'runnable', eligibility_state = 'blocked_by_dependencies',
			public_state = 'waiting_children', blocking_reason = 'waiting_for_children', attempt_state = 'pending_first_attempt', terminal_at_ms = NULL`)
	}
	run(t, f.Maintenance().RepairGroups, 2)
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateFailed: "x", stateReady: "b", stateHeld: "c", stateSkipped: "y"})
}

// F38: an upstream that FlowFabric's retention deleted stays what it was counted as; one that nobody has counted failed.
func TestF38_upstreams_that_are_gone(t *testing.T) {
	t.Parallel()
	gone := func(f *flowFixture, t *testing.T, flow id.FlowID, key string) {
		f.forgetMarks(t, flow, key)
		f.exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", f.NodeID(flow, key).UUID())
	}
	t.Run("counted as a success", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>c", "b>c")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		gone(f, t, flow, "a")
		run(t, f.Maintenance().RepairGroups, 1)
		f.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
		f.succeed(t, flow, "b")
		f.wantState(t, f.NodeID(flow, "c"), stateReady)
	})
	t.Run("counted as a failure and a success", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, when{"d": policy.Quorum(2, policy.LetRun)}, "a>d", "b>d", "c>d")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.fail(t, flow, "b")
		gone(f, t, flow, "a")
		gone(f, t, flow, "b")
		run(t, f.Maintenance().RepairGroups, 1)
		f.wantGroup(t, flow, "d", storedGroup{Success: 1, Fail: 1, Running: 1, KTarget: 2})
	})
	t.Run("beside an end that is counted and not marked yet", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>d", "b>d", "c>d")
		f.claimAll(t)
		f.succeed(t, flow, "b")
		f.forgetMarks(t, flow, "b")
		gone(f, t, flow, "a") // never counted: the success is b's
		run(t, f.Maintenance().RepairGroups, 1)
		f.wantState(t, f.NodeID(flow, "d"), stateSkipped)
	})
	t.Run("never counted", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>c", "c>d")
		gone(f, t, flow, "a")
		run(t, f.Maintenance().RepairGroups, 1)
		f.wantState(t, f.NodeID(flow, "c"), stateSkipped)
		f.wantState(t, f.NodeID(flow, "d"), stateSkipped)
	})
}

// F43: what a replay elsewhere left behind in raw_fields does not say how it ended; the attempt does.
func TestF43_a_stale_outcome_is_not_counted(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>c", "b>c")
	f.claimAll(t)
	a := f.NodeID(flow, "a")
	f.endElsewhere(t, flow, "a", "failed", time.Minute)
	f.setAttempt(t, a, 0, "outcome = 'failed', terminal_at_ms = 1, lease_expires_at_ms = NULL")
	f.setExecution(t, a, `public_state = 'running', raw_fields = raw_fields || '{"terminal_outcome": "success"}'`)
	run(t, f.Maintenance().RepairGroups, 1)
	f.wantGroup(t, flow, "c", storedGroup{Fail: 1, Running: 1, KTarget: 2})
}

// A repaired group does whatever its decision asks for: what remains is listed, a result is passed on.
func TestRepairGroups_does_all_that_follows(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	spec := chart(when{"d": policy.AnyOf(policy.CancelRemaining)}, "a>d", "b>d")
	spec.Edges[0].PassResult = "result"
	flow := f.createFlow(t, spec)
	f.claimAll(t)
	f.endElsewhere(t, flow, "a", "success", time.Minute)
	f.setExecution(t, f.NodeID(flow, "a"), "result = 'left'::bytea")
	run(t, f.Maintenance().RepairGroups, 1)
	f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true, Siblings: "b", Enqueued: true})
	if got := f.stored(t, f.NodeID(flow, "d")); got.State != stateReady || string(got.Payload) != "left" {
		t.Errorf("d is %s with payload %q", got.State, got.Payload)
	}
}

// An edge that FlowFabric and this library apply at once is counted as running by both, and ends once.
func TestF22_an_edge_that_two_programs_applied(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, when{"oops": policy.OnFailure()}, "a>d", "b>d", "a>oops", "b>oops")
	f.setGroup(t, flow, "d", "running_count = running_count + 1")
	f.setGroup(t, flow, "oops", "running_count = running_count + 1")
	f.succeed(t, flow, "a")
	f.fail(t, flow, "b")
	f.wantState(t, f.NodeID(flow, "d"), stateSkipped)
	f.wantState(t, f.NodeID(flow, "oops"), stateHeld)
	run(t, f.Maintenance().RepairGroups, 1)
	f.wantState(t, f.NodeID(flow, "oops"), stateReady)
	f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Success: 1, Fail: 1}))
	run(t, f.Maintenance().RepairGroups, 0)
}

// Groups that FlowFabric is to leave alone keep what makes it do so.
func TestRepairGroups_of_policies_of_this_library(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, when{"never": policy.OnFailure(), "always": policy.Always()}, "a>never", "a>always", "b>never", "b>always")
	f.claimAll(t)
	f.endElsewhere(t, flow, "a", "success", time.Minute)
	run(t, f.Maintenance().RepairGroups, 2)
	const out = 1_000_000_000
	f.wantGroup(t, flow, "always", storedGroup{Success: 1, Running: out + 1, KTarget: out})
	f.wantGroup(t, flow, "never", storedGroup{Success: 1, Running: out + 1, KTarget: out})
	f.endElsewhere(t, flow, "b", "success", time.Minute)
	run(t, f.Maintenance().RepairGroups, 2)
	f.wantGroup(t, flow, "always", storedGroup{Success: 2, Running: out, KTarget: out})
	f.wantMembers(t, flow, map[string]string{stateReady: "always", stateSkipped: "never", stateCompleted: "a b"})
}

// What cannot be decided is left as it is, and keeps nothing else from being repaired.
func TestRepairGroups_leaves_what_it_does_not_know(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>policy", "a>phase", "a>known")
	f.endElsewhere(t, flow, "a", "success", time.Minute)
	f.setGroup(t, flow, "policy", `policy = '{"kind": "some_of"}'`)
	f.setExecution(t, f.NodeID(flow, "phase"), "lifecycle_phase = 'napping'")
	run(t, f.Maintenance().RepairGroups, 1)
	wantEqual(t, "groups", f.groups(t, flow), map[string]storedGroup{
		"policy": {Running: 1, KTarget: 1}, "phase": {Running: 1, KTarget: 1}, "known": {Success: 1, KTarget: 1},
	})
	f.setExecution(t, f.NodeID(flow, "phase"), "lifecycle_phase = 'runnable'")
	run(t, f.Maintenance().RepairGroups, 1)
	f.wantState(t, f.NodeID(flow, "phase"), stateReady)
}

// A replayed member keeps waiting: its upstreams, which ended before, do not count until they end again.
func TestE28_a_repair_does_not_undo_a_replay(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>d", "b>d", "d>e")
	f.claimAll(t)
	f.succeed(t, flow, "b")
	f.fail(t, flow, "a")
	f.advance(time.Second)
	f.replayNode(t, flow, "d", state.PublicWaitingChildren)
	f.advance(time.Minute)
	run(t, f.Maintenance().RepairGroups, 0)
	f.wantState(t, f.NodeID(flow, "d"), stateReplayedHeld)
	f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 2})
	f.replayNode(t, flow, "a", state.PublicWaiting)
	run(t, f.Maintenance().RepairGroups, 0)
	f.succeed(t, flow, "a")
	f.wantState(t, f.NodeID(flow, "d"), stateReplayed)
	// One of another program that ended again, and whose hop was lost, counts: it ended after its edge was opened.
	flow = f.draw(t, nil, "a>d")
	f.fail(t, flow, "a")
	f.advance(time.Second)
	f.replayNode(t, flow, "d", state.PublicWaitingChildren)
	f.advance(time.Minute)
	f.endElsewhere(t, flow, "a", "success", 31*time.Second)
	f.exec(t, "UPDATE ff_attempt SET outcome = 'success' WHERE execution_id = $1", f.NodeID(flow, "a").UUID())
	run(t, f.Maintenance().RepairGroups, 1)
	f.wantState(t, f.NodeID(flow, "d"), stateReplayed)
}

// A flow, a group, or what depends on it, that somebody holds is left to the next time round; the others are repaired.
func TestRepairGroups_waits_for_nobody(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"flow":       "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1)) WHERE $2::uuid IS NOT NULL",
		"flow's row": "SELECT FROM ff_flow_core WHERE flow_id = $1 AND $2::uuid IS NOT NULL FOR UPDATE",
		"group":      "SELECT FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = $2 FOR UPDATE",
		"downstream": "SELECT FROM ff_exec_core WHERE flow_id = $1 AND execution_id = $2 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			held, free := f.draw(t, nil, "a>b"), f.draw(t, nil, "a>b")
			for _, flow := range []id.FlowID{held, free} {
				f.endElsewhere(t, flow, "a", "success", time.Minute)
			}
			tx := f.begin(t)
			execIn(t, tx, hold, held, f.NodeID(held, "b").UUID())
			run(t, f.Maintenance().RepairGroups, 1)
			f.wantState(t, f.NodeID(free, "b"), stateReady)
			f.wantGroup(t, held, "b", storedGroup{Running: 1, KTarget: 1})
			commit(t, tx)
			run(t, f.Maintenance().RepairGroups, 1)
			f.wantState(t, f.NodeID(held, "b"), stateReady)
		})
	}
}

func TestRepairGroups_goes_on_where_it_stopped(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	var flows []id.FlowID
	for range 5 {
		flow := f.draw(t, nil, "a>b")
		f.endElsewhere(t, flow, "a", "success", time.Minute)
		flows = append(flows, flow)
	}
	for i := range flows {
		if n, err := f.Maintenance().RepairGroups(t.Context(), 1); n != 1 || err != nil {
			t.Errorf("call %d repaired %d, error %v", i, n, err)
		}
	}
	for _, flow := range flows {
		f.wantState(t, f.NodeID(flow, "b"), stateReady)
	}
	again := f.draw(t, nil, "a>b")
	f.endElsewhere(t, again, "a", "success", time.Minute)
	found := 0
	for range 7 { // to the end, and another round
		n, err := f.Maintenance().RepairGroups(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		found += n
	}
	if found != 1 {
		t.Errorf("repaired %d in another round", found)
	}
	for _, batch := range []int{-1, 0, engine.MaxSweep + 1} {
		if _, err := f.Maintenance().RepairGroups(t.Context(), batch); !errors.Is(err, engine.ErrInvalidInput) {
			t.Errorf("a batch of %d: %v", batch, err)
		}
	}
}

func TestRepairGroups_in_a_transaction(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>b", "b>c")
	f.endElsewhere(t, flow, "a", "failed", time.Minute)
	before := f.dumpFlow(t, flow)
	for _, end := range []string{"rollback", "commit"} {
		tx := f.begin(t)
		bound := f.WithTx(tx).Maintenance()
		if _, err := bound.RepairGroups(t.Context(), 0); !errors.Is(err, engine.ErrInvalidInput) {
			t.Fatal(err)
		}
		repaired := 0
		for range 2 { // wherever the round is
			n, err := bound.RepairGroups(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			repaired += n
		}
		if repaired != 1 {
			t.Errorf("repaired %d", repaired)
		}
		execIn(t, tx, end)
		if end == "rollback" && f.dumpFlow(t, flow) != before {
			t.Error("something was written")
		}
	}
	f.wantMembers(t, flow, map[string]string{stateSkipped: "b c", "terminal unowned not_applicable failed attempt_terminal waiting_for_worker": "a"})
}

// A group without a row is made by the dispatcher, to which whoever ends an upstream leaves it: from its edges, and from
// what has become of the other upstreams.
func TestResolve_makes_a_missing_group(t *testing.T) {
	t.Parallel()
	drop := func(f *flowFixture, t *testing.T, flow id.FlowID, key string) {
		f.exec(t, "DELETE FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = $2", flow, f.NodeID(flow, key).UUID())
	}
	for name, end := range map[string]struct {
		settle func(*flowFixture, *testing.T, id.FlowID, ...string)
		event  string
		moved  map[string]string
		group  storedGroup
	}{
		"success": {(*flowFixture).succeed, "a success left", map[string]string{stateCompleted: "a", stateReady: "b", stateHeld: "c"}, storedGroup{Success: 1, KTarget: 1}},
		"failure": {(*flowFixture).fail, "a failed left", map[string]string{stateFailed: "a", stateSkipped: "b c"}, storedGroup{Fail: 1, KTarget: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			flow := f.draw(t, nil, "a>b", "b>c")
			drop(f, t, flow, "b")
			end.settle(f, t, flow, "a")
			f.wantCompletionEvents(t, flow, end.event)
			f.wantState(t, f.NodeID(flow, "b"), stateHeld)
			select {
			case <-f.Maintenance().Undispatched():
			default:
				t.Error("the dispatcher is not told")
			}
			run(t, f.Maintenance().DispatchCompletions, 1)
			f.wantMembers(t, flow, end.moved)
			f.wantGroup(t, flow, "b", end.group)
			f.wantOneEventOf(t, flow, "a")
		})
	}
	t.Run("with other upstreams", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>d", "b>d", "c>d")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.endElsewhere(t, flow, "b", "success", time.Minute)
		drop(f, t, flow, "d")
		f.succeed(t, flow, "c")
		f.wantGroup(t, flow, "d", storedGroup{})
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.wantGroup(t, flow, "d", storedGroup{Success: 3, KTarget: 3})
		f.wantState(t, f.NodeID(flow, "d"), stateReady)
	})
	t.Run("on a deeper level", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>b", "b>c", "c>d", "b>e")
		drop(f, t, flow, "c")
		f.fail(t, flow, "a")
		f.wantCompletionEvents(t, flow, "a failed", "b skipped left", "e skipped")
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateSkipped: "b c d e"})
	})
}

// replayElsewhere sets a node back to run again as FlowFabric does, which takes nothing back of what its end counted.
func (f *flowFixture) replayElsewhere(t *testing.T, flow id.FlowID, key string) {
	t.Helper()
	x := f.NodeID(flow, key)
	f.setExecution(t, x, `lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_replay_attempt', attempt_index = attempt_index + 1, terminal_at_ms = NULL,
		raw_fields = raw_fields || jsonb_build_object('replay_count', (coalesce((raw_fields ->> 'replay_count')::integer, 0) + 1)::text)`)
	delete(f.leases, x)
}

// F13: FlowFabric counts an end and marks no edge; when it has replayed the execution, its next end counts instead of the
// first one, not beside it, whoever writes it.
func TestF13_an_upstream_that_another_program_replayed(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*flowFixture, id.FlowID) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>c", "b>c")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.forgetMarks(t, flow, "a")
		f.replayElsewhere(t, flow, "a")
		f.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
		return f, flow
	}
	t.Run("succeeds again", func(t *testing.T) {
		f, flow := begin(t)
		other := f.draw(t, nil, "x>y")
		outcomes, err := f.CompleteExecutions(t.Context(), []engine.Completion{{Lease: f.lease(t, flow, "a")}, {Lease: f.lease(t, other, "x")}})
		if err := errors.Join(append(outcomes, err)...); err != nil {
			t.Fatal(err)
		}
		f.wantState(t, f.NodeID(other, "y"), stateReady)
		f.wantState(t, f.NodeID(flow, "c"), stateHeld)
		f.wantCompletionEvents(t, flow, "a success", "a success left")
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
		f.wantState(t, f.NodeID(flow, "c"), stateHeld)
		f.succeed(t, flow, "b")
		f.wantGroup(t, flow, "c", storedGroup{Success: 2, KTarget: 2})
		f.wantState(t, f.NodeID(flow, "c"), stateReady)
	})
	t.Run("fails", func(t *testing.T) {
		f, flow := begin(t)
		f.fail(t, flow, "a")
		f.wantState(t, f.NodeID(flow, "c"), stateHeld)
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.wantGroup(t, flow, "c", storedGroup{Fail: 1, Running: 1, KTarget: 2})
		f.wantState(t, f.NodeID(flow, "c"), stateSkipped)
	})
	t.Run("ends elsewhere", func(t *testing.T) {
		f, flow := begin(t)
		f.setExecution(t, f.NodeID(flow, "a"), endedElsewhere)
		f.setAttempt(t, f.NodeID(flow, "a"), 0, "outcome = 'success', terminal_at_ms = 1")
		f.foreignEvent(t, f.NodeID(flow, "a"), &flow, "success")
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
		f.wantState(t, f.NodeID(flow, "c"), stateHeld)
	})
	t.Run("beside one that ends for the first time", func(t *testing.T) {
		f, flow := begin(t)
		a, b := f.lease(t, flow, "a"), f.lease(t, flow, "b")
		outcomes, err := f.CompleteExecutions(t.Context(), []engine.Completion{{Lease: a}, {Lease: b}})
		if err := errors.Join(append(outcomes, err)...); err != nil {
			t.Fatal(err)
		}
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.wantGroup(t, flow, "c", storedGroup{Success: 2, KTarget: 2})
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a b", stateReady: "c"})
	})
	t.Run("replayed here before", func(t *testing.T) {
		f, flow := begin(t)
		f.succeed(t, flow, "a")
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.replayNode(t, flow, "a", state.PublicWaiting) // what it counted is taken back
		f.succeed(t, flow, "a")
		f.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
		if n := f.countUndispatched(t); n != 0 {
			t.Errorf("%d events are left", n)
		}
	})
}

// F32: a replay takes nothing away from the number of upstreams, and a member that was cancelled is replayed as well.
func TestF32_a_replay_keeps_the_total(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>d", "b>d", "c>d")
	f.claimAll(t)
	f.succeed(t, flow, "a")
	f.fail(t, flow, "b")
	f.wantState(t, f.NodeID(flow, "d"), stateSkipped)
	f.replayNode(t, flow, "d", state.PublicWaitingChildren)
	f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 2, KTarget: 3})
	f.succeed(t, flow, "c")
	f.wantState(t, f.NodeID(flow, "d"), stateReplayedHeld) // b is still to come
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: f.NodeID(flow, "d")}); err != nil {
		t.Fatal(err)
	}
	f.replayNode(t, flow, "d", state.PublicWaitingChildren)
	f.replayNode(t, flow, "b", state.PublicWaiting)
	f.succeed(t, flow, "b")
	f.wantState(t, f.NodeID(flow, "d"), stateReplayed)
}

// F35: every completion event carries the namespace and the tag of its execution, whoever ended it how; and one that
// another program wrote without them is dispatched like any other.
func TestF35_events_carry_namespace_and_tag(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	spec := chart(nil, "succeeds", "fails>skipped", "skipped>deeper", "cancelled", "expires", "reference>released")
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Namespace, spec.Nodes[i].Spec.Tags = "tenant", map[string]string{"cairn.instance_id": "i-7"}
		if spec.Nodes[i].Key == "expires" {
			spec.Nodes[i].Spec.Deadline = start.Add(time.Minute)
		}
	}
	flow := f.createFlow(t, spec)
	f.succeed(t, flow, "succeeds")
	f.fail(t, flow, "fails")
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: f.NodeID(flow, "cancelled")}); err != nil {
		t.Fatal(err)
	}
	f.advance(2 * time.Minute)
	run(t, f.Maintenance().ExpireDeadlines, 1)
	got := texts(t, f.pool, `SELECT outcome || ' ' || coalesce(namespace, '-') || ' ' || coalesce(instance_tag, '-') FROM ff_completion_event WHERE flow_id = $1 ORDER BY event_id`, flow)
	want := []string{"success tenant i-7", "failed tenant i-7", "skipped tenant i-7", "skipped tenant i-7", "cancelled tenant i-7", "expired tenant i-7"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	f.setExecution(t, f.NodeID(flow, "reference"), endedElsewhere)
	f.foreignEvent(t, f.NodeID(flow, "reference"), &flow, "success") // neither
	run(t, f.Maintenance().DispatchCompletions, 1)
	f.wantState(t, f.NodeID(flow, "released"), stateReady)
}

// F36: events that cannot be dispatched, more than a batch of them and older, keep nothing from being dispatched.
func TestF36_failing_events_starve_nobody(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	for range 7 {
		flow := f.draw(t, nil, "a>b")
		f.setGroup(t, flow, "b", `policy = '{"kind": "some_of"}'`)
		f.fail(t, flow, "a")
	}
	good := f.draw(t, nil, "a>b")
	f.setExecution(t, f.NodeID(good, "a"), endedElsewhere)
	f.foreignEvent(t, f.NodeID(good, "a"), &good, "success")
	if n, err := f.Maintenance().DispatchCompletions(t.Context(), 2); n != 1 || err != nil {
		t.Errorf("dispatched %d, error %v", n, err)
	}
	f.wantState(t, f.NodeID(good, "b"), stateReady)
}
