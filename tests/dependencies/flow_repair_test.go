package dependencies

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// F12: FlowFabric takes note of an end, and dies before it has counted it.
func TestRepairGroupsCountsALostEnd_F12(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[string]struct {
		moved, edge string
		group       fixture.StoredGroup
		events      []string
	}{
		"success": {fixture.StateReady, "satisfied success", fixture.StoredGroup{Success: 1, KTarget: 1}, []string{"a success"}},
		"failed":  {fixture.StateSkipped, "impossible failed", fixture.StoredGroup{Fail: 1, KTarget: 1}, []string{"a failed", "c skipped", "d skipped"}},
		"expired": {fixture.StateSkipped, "impossible expired", fixture.StoredGroup{Fail: 1, KTarget: 1}, []string{"a expired", "c skipped", "d skipped"}},
		"skipped": {fixture.StateSkipped, "impossible skipped", fixture.StoredGroup{Skip: 1, KTarget: 1}, []string{"a skipped", "c skipped", "d skipped"}},
	} {
		t.Run(outcome, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := f.Draw(t, nil, "a>c", "c>d")
			f.EndElsewhere(t, flow, "a", outcome, 29*time.Second)
			fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 0) // it may be about to count it
			f.WantGroup(t, flow, "c", fixture.StoredGroup{Running: 1, KTarget: 1})
			f.Advance(time.Second)
			fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
			f.WantState(t, f.NodeID(flow, "c"), want.moved)
			f.WantGroup(t, flow, "c", want.group)
			if got := f.Edges(t, flow)["a>c"]; got != want.edge {
				t.Errorf("edge %s, want %s", got, want.edge)
			}
			f.WantCompletionEvents(t, flow, want.events...)
			before := f.DumpFlow(t, flow)
			fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 0)
			if f.DumpFlow(t, flow) != before {
				t.Error("a second repair wrote something")
			}
		})
	}
}

// Each of several upstreams counts once, whichever program counted it, and however that is marked.
func TestRepairGroupsCountsEachEndOnce_F12_F13(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>d", "b>d", "c>d", "e>d", "g>d")
	f.ClaimAll(t)
	f.Succeed(t, flow, "a")
	f.Succeed(t, flow, "b")
	f.ForgetMarks(t, flow, "b") // counted elsewhere
	f.EndElsewhere(t, flow, "c", "success", time.Minute)
	f.SetExecution(t, f.NodeID(flow, "b"), "terminal_at_ms = 1")
	f.StageOnly(t, flow, "g", "d")
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 3, Running: 1, KTarget: 4})
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateHeld)
	fixture.WantEqual(t, "edges", f.Edges(t, flow), map[string]string{
		"a>d": "satisfied success", "b>d": "satisfied success", "c>d": "satisfied success", "e>d": "applied", "g>d": "pending",
	})
	f.Succeed(t, flow, "e")
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateHeld) // the staged edge holds it
}

// An end that a dispatcher will still count is left to it.
func TestRepairGroupsLeavesUndispatchedEnds(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>c", "b>c")
	f.SetExecution(t, f.NodeID(flow, "a"), fixture.EndedElsewhere)
	f.ForeignEvent(t, f.NodeID(flow, "a"), &flow, "success")
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 0)
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Running: 2, KTarget: 2})
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 0)
}

// A group that is decided although its downstream still waits is acted upon.
func TestRepairGroupsReleasesDecidedDependents(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>b", "b>c", "x>y")
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "x")
	for _, key := range []string{"b", "y"} {
		f.SetExecution(t, f.NodeID(flow, key), `lifecycle_phase = 'runnable', eligibility_state = 'blocked_by_dependencies',
			public_state = 'waiting_children', blocking_reason = 'waiting_for_children', attempt_state = 'pending_first_attempt', terminal_at_ms = NULL`)
	}
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 2)
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateFailed: "x", fixture.StateReady: "b", fixture.StateHeld: "c", fixture.StateSkipped: "y"})
}

// F38: an upstream that FlowFabric's retention deleted keeps its counted outcome; one that was never counted failed.
func TestRepairGroupsCountsPurgedUpstreams_F38(t *testing.T) {
	t.Parallel()
	gone := func(f *fixture.Flows, t *testing.T, flow id.FlowID, key string) {
		f.ForgetMarks(t, flow, key)
		f.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", f.NodeID(flow, key).UUID())
	}
	t.Run("counted as a success", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>c", "b>c")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		gone(f, t, flow, "a")
		fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		f.Succeed(t, flow, "b")
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateReady)
	})
	t.Run("counted as a failure and a success", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.When{"d": policy.Quorum(2, policy.LetRun)}, "a>d", "b>d", "c>d")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		f.Fail(t, flow, "b")
		gone(f, t, flow, "a")
		gone(f, t, flow, "b")
		fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
		f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Fail: 1, Running: 1, KTarget: 2})
	})
	t.Run("beside an end that is counted and not marked yet", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>d", "b>d", "c>d")
		f.ClaimAll(t)
		f.Succeed(t, flow, "b")
		f.ForgetMarks(t, flow, "b")
		gone(f, t, flow, "a") // never counted: the success is b's
		fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
		f.WantState(t, f.NodeID(flow, "d"), fixture.StateSkipped)
	})
	t.Run("never counted", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>c", "c>d")
		gone(f, t, flow, "a")
		fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateSkipped)
		f.WantState(t, f.NodeID(flow, "d"), fixture.StateSkipped)
	})
}

// F43: fields that a replay elsewhere left behind in raw_fields do not give the outcome; the attempt does.
func TestRepairGroupsIgnoresAStaleOutcome_F43(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>c", "b>c")
	f.ClaimAll(t)
	a := f.NodeID(flow, "a")
	f.EndElsewhere(t, flow, "a", "failed", time.Minute)
	f.SetAttempt(t, a, 0, "outcome = 'failed', terminal_at_ms = 1, lease_expires_at_ms = NULL")
	f.SetExecution(t, a, `public_state = 'running', raw_fields = raw_fields || '{"terminal_outcome": "success"}'`)
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Fail: 1, Running: 1, KTarget: 2})
}

// A repaired group does everything its decision asks for: remaining upstreams are listed, a result is passed on.
func TestRepairGroupsListsSiblingsAndPassesResults(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	spec := fixture.Chart(fixture.When{"d": policy.AnyOf(policy.CancelRemaining)}, "a>d", "b>d")
	spec.Edges[0].PassResult = "result"
	flow := f.NewFlowOf(t, spec)
	f.ClaimAll(t)
	f.EndElsewhere(t, flow, "a", "success", time.Minute)
	f.SetExecution(t, f.NodeID(flow, "a"), "result = 'left'::bytea")
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true, Siblings: "b", Enqueued: true})
	if got := f.Stored(t, f.NodeID(flow, "d")); got.State != fixture.StateReady || string(got.Payload) != "left" {
		t.Errorf("d is %s with payload %q", got.State, got.Payload)
	}
}

// An edge that FlowFabric and this library apply at once is counted as running by both, and ends once.
func TestRepairGroupsFixesADoublyAppliedEdge_F22(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, fixture.When{"oops": policy.OnFailure()}, "a>d", "b>d", "a>oops", "b>oops")
	f.SetGroup(t, flow, "d", "running_count = running_count + 1")
	f.SetGroup(t, flow, "oops", "running_count = running_count + 1")
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "b")
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateSkipped)
	f.WantState(t, f.NodeID(flow, "oops"), fixture.StateHeld)
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
	f.WantState(t, f.NodeID(flow, "oops"), fixture.StateReady)
	f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Success: 1, Fail: 1}))
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 0)
}

// Groups that FlowFabric must leave alone keep the counters that make it do so.
func TestRepairGroupsOfPoliciesOfThisLibrary(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, fixture.When{"never": policy.OnFailure(), "always": policy.Always()}, "a>never", "a>always", "b>never", "b>always")
	f.ClaimAll(t)
	f.EndElsewhere(t, flow, "a", "success", time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 2)
	const out = 1_000_000_000
	f.WantGroup(t, flow, "always", fixture.StoredGroup{Success: 1, Running: out + 1, KTarget: out})
	f.WantGroup(t, flow, "never", fixture.StoredGroup{Success: 1, Running: out + 1, KTarget: out})
	f.EndElsewhere(t, flow, "b", "success", time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 2)
	f.WantGroup(t, flow, "always", fixture.StoredGroup{Success: 2, Running: out, KTarget: out})
	f.WantMembers(t, flow, map[string]string{fixture.StateReady: "always", fixture.StateSkipped: "never", fixture.StateCompleted: "a b"})
}

// Groups that cannot be decided stay unchanged, and keep nothing else from being repaired.
func TestRepairGroupsLeavesUnknownPoliciesAlone(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>policy", "a>phase", "a>known")
	f.EndElsewhere(t, flow, "a", "success", time.Minute)
	f.SetGroup(t, flow, "policy", `policy = '{"kind": "some_of"}'`)
	f.SetExecution(t, f.NodeID(flow, "phase"), "lifecycle_phase = 'napping'")
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
	fixture.WantEqual(t, "groups", f.Groups(t, flow), map[string]fixture.StoredGroup{
		"policy": {Running: 1, KTarget: 1}, "phase": {Running: 1, KTarget: 1}, "known": {Success: 1, KTarget: 1},
	})
	f.SetExecution(t, f.NodeID(flow, "phase"), "lifecycle_phase = 'runnable'")
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
	f.WantState(t, f.NodeID(flow, "phase"), fixture.StateReady)
}

// A replayed member keeps waiting: its upstreams, which ended before, do not count until they end again.
func TestRepairGroupsKeepsAReplay_E28(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>d", "b>d", "d>e")
	f.ClaimAll(t)
	f.Succeed(t, flow, "b")
	f.Fail(t, flow, "a")
	f.Advance(time.Second)
	f.ReplayNode(t, flow, "d", state.PublicWaitingChildren)
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 0)
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateReplayedHeld)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 0)
	f.Succeed(t, flow, "a")
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateReplayed)
	// One of another program that ended again, and whose hop was lost, counts: it ended after its edge was opened.
	flow = f.Draw(t, nil, "a>d")
	f.Fail(t, flow, "a")
	f.Advance(time.Second)
	f.ReplayNode(t, flow, "d", state.PublicWaitingChildren)
	f.Advance(time.Minute)
	f.EndElsewhere(t, flow, "a", "success", 31*time.Second)
	f.Exec(t, "UPDATE ff_attempt SET outcome = 'success' WHERE execution_id = $1", f.NodeID(flow, "a").UUID())
	fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateReplayed)
}

// A locked flow, group or dependent is left to the next round; the others are repaired.
func TestRepairGroupsNeverWaits(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"flow":       "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1)) WHERE $2::uuid IS NOT NULL",
		"flow's row": "SELECT FROM ff_flow_core WHERE flow_id = $1 AND $2::uuid IS NOT NULL FOR UPDATE",
		"group":      "SELECT FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = $2 FOR UPDATE",
		"downstream": "SELECT FROM ff_exec_core WHERE flow_id = $1 AND execution_id = $2 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			held, free := f.Draw(t, nil, "a>b"), f.Draw(t, nil, "a>b")
			for _, flow := range []id.FlowID{held, free} {
				f.EndElsewhere(t, flow, "a", "success", time.Minute)
			}
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, hold, held, f.NodeID(held, "b").UUID())
			fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
			f.WantState(t, f.NodeID(free, "b"), fixture.StateReady)
			f.WantGroup(t, held, "b", fixture.StoredGroup{Running: 1, KTarget: 1})
			fixture.Commit(t, tx)
			fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
			f.WantState(t, f.NodeID(held, "b"), fixture.StateReady)
		})
	}
}

func TestRepairGroupsContinuesWhereItStopped(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	var flows []id.FlowID
	for range 5 {
		flow := f.Draw(t, nil, "a>b")
		f.EndElsewhere(t, flow, "a", "success", time.Minute)
		flows = append(flows, flow)
	}
	for i := range flows {
		if n, err := upkeep.Of(f.Engine).RepairGroups(t.Context(), 1); n != 1 || err != nil {
			t.Errorf("call %d repaired %d, error %v", i, n, err)
		}
	}
	for _, flow := range flows {
		f.WantState(t, f.NodeID(flow, "b"), fixture.StateReady)
	}
	again := f.Draw(t, nil, "a>b")
	f.EndElsewhere(t, again, "a", "success", time.Minute)
	found := 0
	for range 7 { // to the end, and another round
		n, err := upkeep.Of(f.Engine).RepairGroups(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		found += n
	}
	if found != 1 {
		t.Errorf("repaired %d in another round", found)
	}
	for _, batch := range []int{-1, 0, core.MaxSweep + 1} {
		if _, err := upkeep.Of(f.Engine).RepairGroups(t.Context(), batch); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("a batch of %d: %v", batch, err)
		}
	}
}

func TestRepairGroupsInATransaction(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>b", "b>c")
	f.EndElsewhere(t, flow, "a", "failed", time.Minute)
	before := f.DumpFlow(t, flow)
	for _, end := range []string{"rollback", "commit"} {
		tx := f.BeginTx(t)
		bound := upkeep.Of(f.WithTx(tx))
		if _, err := bound.RepairGroups(t.Context(), 0); !errors.Is(err, fferr.ErrInvalidInput) {
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
		fixture.ExecIn(t, tx, end)
		if end == "rollback" && f.DumpFlow(t, flow) != before {
			t.Error("something was written")
		}
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateSkipped: "b c", "terminal unowned not_applicable failed attempt_terminal waiting_for_worker": "a"})
}

// The dispatcher creates a group without a row, since the end of an upstream leaves it to it: from its edges, and
// from the states of the other upstreams.
func TestResolveMakesAMissingGroup(t *testing.T) {
	t.Parallel()
	drop := func(f *fixture.Flows, t *testing.T, flow id.FlowID, key string) {
		f.Exec(t, "DELETE FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = $2", flow, f.NodeID(flow, key).UUID())
	}
	for name, end := range map[string]struct {
		settle func(*fixture.Flows, *testing.T, id.FlowID, ...string)
		event  string
		moved  map[string]string
		group  fixture.StoredGroup
	}{
		"success": {(*fixture.Flows).Succeed, "a success left", map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b", fixture.StateHeld: "c"}, fixture.StoredGroup{Success: 1, KTarget: 1}},
		"failure": {(*fixture.Flows).Fail, "a failed left", map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b c"}, fixture.StoredGroup{Fail: 1, KTarget: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := f.Draw(t, nil, "a>b", "b>c")
			drop(f, t, flow, "b")
			end.settle(f, t, flow, "a")
			f.WantCompletionEvents(t, flow, end.event)
			f.WantState(t, f.NodeID(flow, "b"), fixture.StateHeld)
			select {
			case <-upkeep.Of(f.Engine).Undispatched():
			default:
				t.Error("the dispatcher is not told")
			}
			fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
			f.WantMembers(t, flow, end.moved)
			f.WantGroup(t, flow, "b", end.group)
			wantOneEventOf(t, f, flow, "a")
		})
	}
	t.Run("with other upstreams", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>d", "b>d", "c>d")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		f.EndElsewhere(t, flow, "b", "success", time.Minute)
		drop(f, t, flow, "d")
		f.Succeed(t, flow, "c")
		f.WantGroup(t, flow, "d", fixture.StoredGroup{})
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 3, KTarget: 3})
		f.WantState(t, f.NodeID(flow, "d"), fixture.StateReady)
	})
	t.Run("on a deeper level", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>b", "b>c", "c>d", "b>e")
		drop(f, t, flow, "c")
		f.Fail(t, flow, "a")
		f.WantCompletionEvents(t, flow, "a failed", "b skipped left", "e skipped")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b c d e"})
	})
}

// replayElsewhere sets a node back to run again like FlowFabric, which does not undo the count of its end.
func replayElsewhere(t *testing.T, f *fixture.Flows, flow id.FlowID, key string) {
	t.Helper()
	x := f.NodeID(flow, key)
	f.SetExecution(t, x, `lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_replay_attempt', attempt_index = attempt_index + 1, terminal_at_ms = NULL,
		raw_fields = raw_fields || jsonb_build_object('replay_count', (coalesce((raw_fields ->> 'replay_count')::integer, 0) + 1)::text)`)
	delete(f.Leases, x)
}

// F13: FlowFabric counts an end and marks no edge. After a replay by it, the next end counts instead of the first
// one, not beside it, whichever program writes it.
func TestForeignReplayIsCountedOnce_F13(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*fixture.Flows, id.FlowID) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>c", "b>c")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		f.ForgetMarks(t, flow, "a")
		replayElsewhere(t, f, flow, "a")
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		return f, flow
	}
	t.Run("succeeds again", func(t *testing.T) {
		f, flow := begin(t)
		other := f.Draw(t, nil, "x>y")
		outcomes, err := f.CompleteExecutions(t.Context(), []engine.Completion{{Lease: f.Lease(t, flow, "a")}, {Lease: f.Lease(t, other, "x")}})
		if err := errors.Join(append(outcomes, err)...); err != nil {
			t.Fatal(err)
		}
		f.WantState(t, f.NodeID(other, "y"), fixture.StateReady)
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateHeld)
		f.WantCompletionEvents(t, flow, "a success", "a success left")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateHeld)
		f.Succeed(t, flow, "b")
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 2, KTarget: 2})
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateReady)
	})
	t.Run("fails", func(t *testing.T) {
		f, flow := begin(t)
		f.Fail(t, flow, "a")
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateHeld)
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Fail: 1, Running: 1, KTarget: 2})
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateSkipped)
	})
	t.Run("ends elsewhere", func(t *testing.T) {
		f, flow := begin(t)
		f.SetExecution(t, f.NodeID(flow, "a"), fixture.EndedElsewhere)
		f.SetAttempt(t, f.NodeID(flow, "a"), 0, "outcome = 'success', terminal_at_ms = 1")
		f.ForeignEvent(t, f.NodeID(flow, "a"), &flow, "success")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateHeld)
	})
	t.Run("beside one that ends for the first time", func(t *testing.T) {
		f, flow := begin(t)
		a, b := f.Lease(t, flow, "a"), f.Lease(t, flow, "b")
		outcomes, err := f.CompleteExecutions(t.Context(), []engine.Completion{{Lease: a}, {Lease: b}})
		if err := errors.Join(append(outcomes, err)...); err != nil {
			t.Fatal(err)
		}
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 2, KTarget: 2})
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b", fixture.StateReady: "c"})
	})
	t.Run("replayed here before", func(t *testing.T) {
		f, flow := begin(t)
		f.Succeed(t, flow, "a")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.ReplayNode(t, flow, "a", state.PublicWaiting) // its count is undone
		f.Succeed(t, flow, "a")
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		if n := countUndispatched(t, f); n != 0 {
			t.Errorf("%d events are left", n)
		}
	})
}

// F32: a replay takes nothing away from the number of upstreams, and a member that was cancelled is replayed as well.
func TestReplayKeepsTheTotal_F32(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>d", "b>d", "c>d")
	f.ClaimAll(t)
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "b")
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateSkipped)
	f.ReplayNode(t, flow, "d", state.PublicWaitingChildren)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 2, KTarget: 3})
	f.Succeed(t, flow, "c")
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateReplayedHeld) // b is still to come
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: f.NodeID(flow, "d")}); err != nil {
		t.Fatal(err)
	}
	f.ReplayNode(t, flow, "d", state.PublicWaitingChildren)
	f.ReplayNode(t, flow, "b", state.PublicWaiting)
	f.Succeed(t, flow, "b")
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateReplayed)
}

// F35: every completion event carries the namespace and the tag of its execution, for every kind of end; and one that
// another program wrote without them is dispatched like any other.
func TestResolvedEventsCarryNamespaceAndTag_F35(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	spec := fixture.Chart(nil, "succeeds", "fails>skipped", "skipped>deeper", "cancelled", "expires", "reference>released")
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Namespace, spec.Nodes[i].Spec.Tags = "tenant", map[string]string{"cairn.instance_id": "i-7"}
		if spec.Nodes[i].Key == "expires" {
			spec.Nodes[i].Spec.Deadline = fixture.Start.Add(time.Minute)
		}
	}
	flow := f.NewFlowOf(t, spec)
	f.Succeed(t, flow, "succeeds")
	f.Fail(t, flow, "fails")
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: f.NodeID(flow, "cancelled")}); err != nil {
		t.Fatal(err)
	}
	f.Advance(2 * time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
	got := fixture.Texts(t, f.Pool, `SELECT outcome || ' ' || coalesce(namespace, '-') || ' ' || coalesce(instance_tag, '-') FROM ff_completion_event WHERE flow_id = $1 ORDER BY event_id`, flow)
	want := []string{"success tenant i-7", "failed tenant i-7", "skipped tenant i-7", "skipped tenant i-7", "cancelled tenant i-7", "expired tenant i-7"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	f.SetExecution(t, f.NodeID(flow, "reference"), fixture.EndedElsewhere)
	f.ForeignEvent(t, f.NodeID(flow, "reference"), &flow, "success") // neither
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
	f.WantState(t, f.NodeID(flow, "released"), fixture.StateReady)
}

// F36: events that cannot be dispatched, more than a batch of them and older, keep nothing from being dispatched.
func TestFailingDispatchStarvesNoOthers_F36(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	for range 7 {
		flow := f.Draw(t, nil, "a>b")
		f.SetGroup(t, flow, "b", `policy = '{"kind": "some_of"}'`)
		f.Fail(t, flow, "a")
	}
	good := f.Draw(t, nil, "a>b")
	f.SetExecution(t, f.NodeID(good, "a"), fixture.EndedElsewhere)
	f.ForeignEvent(t, f.NodeID(good, "a"), &good, "success")
	if n, err := upkeep.Of(f.Engine).DispatchCompletions(t.Context(), 2); n != 1 || err != nil {
		t.Errorf("dispatched %d, error %v", n, err)
	}
	f.WantState(t, f.NodeID(good, "b"), fixture.StateReady)
}
