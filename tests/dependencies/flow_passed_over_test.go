package dependencies

import (
	"fmt"
	"maps"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// notPromoted are possible rows of members before any program has promoted them: their columns differ from a blocked
// member of this library.
var notPromoted = map[string]string{
	"created_by_FlowFabric": "lifecycle_phase = 'submitted', eligibility_state = 'eligible_now', public_state = 'waiting', attempt_state = 'pending', blocking_reason = NULL",
	"blocked_by_FlowFabric": "lifecycle_phase = 'submitted', attempt_state = 'pending'",
	"blocked":               "lifecycle_phase = 'blocked', attempt_state = 'none'",
	"pending":               "lifecycle_phase = 'pending', attempt_state = ''",
	"eligible":              "lifecycle_phase = 'eligible', eligibility_state = 'eligible_now'",
	"released":              "ownership_state = 'released'",
}

// Every phase before active is skipped and released, by a completion and by the dispatcher.
func TestPassedOverMembersInEveryPhase(t *testing.T) {
	t.Parallel()
	for name, change := range notPromoted {
		for _, by := range []string{"ending", "dispatcher"} {
			t.Run(name+"_by_"+by, func(t *testing.T) {
				f := fixture.FlowsOn(fixture.NewCloned(t))
				flow := f.Draw(t, nil, "a>d", "b>d", "c>e", "d>f")
				d, e := f.NodeID(flow, "d"), f.NodeID(flow, "e")
				f.ClaimAll(t)
				f.SetExecution(t, d, change)
				f.SetExecution(t, e, change)
				end := func(key, outcome string, settle func(*testing.T, id.FlowID, ...string)) {
					if by == "ending" {
						settle(t, flow, key)
						return
					}
					f.SetExecution(t, f.NodeID(flow, key), fixture.EndedElsewhere)
					f.ForeignEvent(t, f.NodeID(flow, key), &flow, outcome)
					fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
				}
				end("a", "failed", f.Fail)
				end("b", "failed", f.Fail)
				end("c", "success", f.Succeed)
				f.WantState(t, d, fixture.StateSkipped)
				f.WantState(t, f.NodeID(flow, "f"), fixture.StateSkipped)
				f.WantState(t, e, fixture.StateReady)
				if n := countUndispatched(t, f); n != 0 {
					t.Errorf("%d events are undispatched", n)
				}
				claimed := f.ClaimOne(t)
				if claimed.ID != e {
					t.Errorf("claimed %s, want the released one", claimed.ID)
				}
				// If another program promotes a member that has ended since, it finds its end.
				f.Exec(t, fixture.UpdateExecution("eligibility_state = 'eligible_now'")+" AND lifecycle_phase NOT IN ('terminal', 'cancelled')", d.Partition(), d.UUID())
				f.WantState(t, d, fixture.StateSkipped)
			})
		}
	}
}

// A member that is released without having been promoted goes where its delay, budget or quota sends it.
func TestPassedOverMemberGoesToItsGate(t *testing.T) {
	budget := id.NewBudgetID()
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	f.Attach(t, b, []id.BudgetID{budget}, nil)
	f.SetExecution(t, b, notPromoted["created_by_FlowFabric"])
	f.Succeed(t, flow, "a")
	f.WantState(t, b, "runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget")
}

// A member that a decision concerns, but that must still be passed over, leaves its edge open and uncounted, and the
// event of its upstream undispatched. Everything else is resolved. Once it can be decided, the dispatcher goes on.
func TestPassedOverEdgesAreLeftToTheDispatcher(t *testing.T) {
	t.Parallel()
	broken := map[string]struct {
		change, mend func(f *fixture.Flows, t *testing.T, flow id.FlowID)
	}{
		"unknown_phase": {
			change: func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
				f.SetExecution(t, f.NodeID(flow, "d"), "lifecycle_phase = 'napping'")
			},
			mend: func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
				f.SetExecution(t, f.NodeID(flow, "d"), "lifecycle_phase = 'runnable'")
			},
		},
		"owned_although_blocked": {
			change: func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
				f.SetExecution(t, f.NodeID(flow, "d"), "ownership_state = 'leased'")
			},
			mend: func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
				f.SetExecution(t, f.NodeID(flow, "d"), "ownership_state = 'unowned'")
			},
		},
		"unreadable_policy": {
			change: func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
				f.SetGroup(t, flow, "d", `policy = '{"kind": "some_of"}'`)
			},
			mend: func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
				f.SetGroup(t, flow, "d", `policy = '{"kind": "all_of"}'`)
			},
		},
		"no_object": {
			change: func(f *fixture.Flows, t *testing.T, flow id.FlowID) { f.SetGroup(t, flow, "d", `policy = '[]'`) },
			mend:   func(f *fixture.Flows, t *testing.T, flow id.FlowID) { f.SetGroup(t, flow, "d", `policy = '{}'`) },
		},
	}
	ends := map[string]struct {
		settle func(*fixture.Flows, *testing.T, id.FlowID, ...string)
		event  string
		edge   string
		moved  string
		others fixture.StoredGroup
	}{
		"success": {(*fixture.Flows).Succeed, "a success", "satisfied success", fixture.StateReady, fixture.StoredGroup{Success: 1, KTarget: 1}},
		"failure": {(*fixture.Flows).Fail, "a failed", "impossible failed", fixture.StateSkipped, fixture.StoredGroup{Fail: 1, KTarget: 1}},
	}
	for brokenName, b := range broken {
		for endName, end := range ends {
			t.Run(brokenName+"_"+endName, func(t *testing.T) {
				f := fixture.FlowsOn(fixture.NewCloned(t))
				flow := f.Draw(t, nil, "a>d", "a>e", "x>y")
				f.ClaimAll(t)
				d := f.NodeID(flow, "d")
				b.change(f, t, flow)
				before := f.Dump(t, d)
				end.settle(f, t, flow, "a", "x") // in one batch with one that is whole
				left := func(event string) {
					t.Helper()
					f.WantUnchanged(t, d, before)
					fixture.WantEqual(t, "edges", f.Edges(t, flow), map[string]string{"a>d": "applied", "a>e": end.edge, "x>y": end.edge})
					f.WantState(t, f.NodeID(flow, "e"), end.moved)
					f.WantState(t, f.NodeID(flow, "y"), end.moved)
					want := map[string]fixture.StoredGroup{"d": {Running: 1, KTarget: 1}, "e": end.others, "y": end.others}
					fixture.WantEqual(t, "groups", f.Groups(t, flow), want)
					got := make(map[string]bool)
					for _, e := range f.CompletionEvents(t, flow) {
						got[e] = true
					}
					wantEvents := map[string]bool{event: true, "x" + end.event[1:]: true}
					if end.moved == fixture.StateSkipped {
						maps.Copy(wantEvents, map[string]bool{"e skipped": true, "y skipped": true})
					}
					fixture.WantEqual(t, "events", got, wantEvents)
				}
				left(end.event + " left")
				// The dispatcher meets the same, and leaves it as it is.
				fixture.Run(t, upkeep.Of(f.EngineOn(t, f.Pool, engine.Config{})).DispatchCompletions, 0)
				left(end.event + " left")
				b.mend(f, t, flow)
				fixture.Run(t, upkeep.Of(f.EngineOn(t, f.Pool, engine.Config{})).DispatchCompletions, 1)
				f.WantState(t, d, end.moved)
				f.WantGroup(t, flow, "d", end.others)
				wantOneEventOf(t, f, flow, "a")
				fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 0)
			})
		}
	}
}

func wantOneEventOf(t *testing.T, f *fixture.Flows, flow id.FlowID, key string) {
	t.Helper()
	x := f.NodeID(flow, key)
	if dispatched := fixture.Texts(t, f.Pool, "SELECT (dispatched_at_ms IS NOT NULL)::text FROM ff_completion_event WHERE partition_key = $1 AND execution_id = $2",
		x.Partition(), x.UUID()); len(dispatched) != 1 || dispatched[0] != "true" {
		t.Errorf("%s has events, dispatched: %q", key, dispatched)
	}
}

// The same below a skipped member: the event of the skipped one stays undispatched.
func TestPassedOverEdgesOnADeeperLevel(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>b", "b>c", "b>d", "c>e")
	f.SetExecution(t, f.NodeID(flow, "c"), "lifecycle_phase = 'napping'")
	f.Fail(t, flow, "a")
	f.WantCompletionEvents(t, flow, "a failed", "b skipped left", "d skipped")
	f.SetExecution(t, f.NodeID(flow, "c"), "lifecycle_phase = 'submitted'")
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b c d e"})
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Skip: 1, KTarget: 1})
}

// A group that cancels its remaining upstreams lists none while its downstream is passed over.
func TestPassedOverGroupListsNoSiblings(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d")
	f.ClaimAll(t)
	f.SetExecution(t, f.NodeID(flow, "d"), "lifecycle_phase = 'napping'")
	f.Succeed(t, flow, "a")
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Running: 2, KTarget: 1})
	f.SetExecution(t, f.NodeID(flow, "d"), "lifecycle_phase = 'runnable'")
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true, Siblings: "b", Enqueued: true})
}

// Members that decide for themselves, or need no decision, are not left: the dispatcher would never finish with them.
func TestDecidedMembersAreNotPassedOver(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"active":                  "lifecycle_phase = 'active', ownership_state = 'leased', started_at_ms = 1",
		"suspended":               "lifecycle_phase = 'suspended', ownership_state = 'released', started_at_ms = 1",
		"resumable":               "eligibility_state = 'eligible_now', public_state = 'resumable', started_at_ms = 1",
		"resumable_never_started": "eligibility_state = 'eligible_now', public_state = 'resumable'",
		"between_attempts":        "eligibility_state = 'eligible_now', public_state = 'waiting', started_at_ms = 1",
		"cancelled":               "lifecycle_phase = 'cancelled', eligibility_state = 'not_applicable'",
		"gone":                    "",
	} {
		for endName, settle := range map[string]func(*fixture.Flows, *testing.T, id.FlowID, ...string){
			"success": (*fixture.Flows).Succeed, "failure": (*fixture.Flows).Fail,
		} {
			t.Run(fmt.Sprintf("%s_%s", name, endName), func(t *testing.T) {
				f := fixture.FlowsOn(fixture.NewCloned(t))
				flow := f.Draw(t, nil, "a>d")
				f.ClaimAll(t)
				if change == "" {
					f.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", f.NodeID(flow, "d").UUID())
				} else {
					f.SetExecution(t, f.NodeID(flow, "d"), change)
				}
				settle(f, t, flow, "a")
				if n := countUndispatched(t, f); n != 0 {
					t.Errorf("%d events are undispatched", n)
				}
				if got := f.Groups(t, flow)["d"]; got.Running != 0 {
					t.Errorf("group %+v", got)
				}
				if got := f.Members(t, flow)["d"]; got == fixture.StateSkipped {
					t.Error("it was skipped")
				}
			})
		}
	}
}
