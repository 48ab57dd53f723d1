package tests

import (
	"fmt"
	"maps"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// notPromoted are rows of members as they may stand before anybody has promoted them: what is stored differs from a
// blocked member of this library.
var notPromoted = map[string]string{
	"created_by_FlowFabric": "lifecycle_phase = 'submitted', eligibility_state = 'eligible_now', public_state = 'waiting', attempt_state = 'pending', blocking_reason = NULL",
	"blocked_by_FlowFabric": "lifecycle_phase = 'submitted', attempt_state = 'pending'",
	"blocked":               "lifecycle_phase = 'blocked', attempt_state = 'none'",
	"pending":               "lifecycle_phase = 'pending', attempt_state = ''",
	"eligible":              "lifecycle_phase = 'eligible', eligibility_state = 'eligible_now'",
	"released":              "ownership_state = 'released'",
}

// Every phase before active is skipped and released, by a completion and by the dispatcher.
func TestA19_every_phase_before_active(t *testing.T) {
	t.Parallel()
	for name, change := range notPromoted {
		for _, by := range []string{"ending", "dispatcher"} {
			t.Run(name+"_by_"+by, func(t *testing.T) {
				f := flowsOn(cloneFixture(t))
				flow := f.draw(t, nil, "a>d", "b>d", "c>e", "d>f")
				d, e := f.NodeID(flow, "d"), f.NodeID(flow, "e")
				f.claimAll(t)
				f.setExecution(t, d, change)
				f.setExecution(t, e, change)
				end := func(key, outcome string, settle func(*testing.T, id.FlowID, ...string)) {
					if by == "ending" {
						settle(t, flow, key)
						return
					}
					f.setExecution(t, f.NodeID(flow, key), endedElsewhere)
					f.foreignEvent(t, f.NodeID(flow, key), &flow, outcome)
					run(t, f.Maintenance().DispatchCompletions, 1)
				}
				end("a", "failed", f.fail)
				end("b", "failed", f.fail)
				end("c", "success", f.succeed)
				f.wantState(t, d, stateSkipped)
				f.wantState(t, f.NodeID(flow, "f"), stateSkipped)
				f.wantState(t, e, stateReady)
				if n := f.countUndispatched(t); n != 0 {
					t.Errorf("%d events are undispatched", n)
				}
				claimed := f.claim(t)
				if claimed.ID != e {
					t.Errorf("claimed %s, want the released one", claimed.ID)
				}
				// Another program that promotes what has ended meanwhile meets its end.
				f.exec(t, updateExecution("eligibility_state = 'eligible_now'")+" AND lifecycle_phase NOT IN ('terminal', 'cancelled')", d.Partition(), d.UUID())
				f.wantState(t, d, stateSkipped)
			})
		}
	}
}

// A member that is released without having been promoted goes where its delay, budget or quota sends it.
func TestA19_released_to_its_gate(t *testing.T) {
	budget := id.NewBudgetID()
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	f.attach(t, b, []id.BudgetID{budget}, nil)
	f.setExecution(t, b, notPromoted["created_by_FlowFabric"])
	f.succeed(t, flow, "a")
	f.wantState(t, b, "runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget")
}

// What a decision concerns, and what must still be passed over, leaves its edge open and uncounted, and the event of
// its upstream undispatched. Everything else is resolved. Once it can be decided, the dispatcher goes on.
func TestA19_what_is_passed_over_is_left_to_the_dispatcher(t *testing.T) {
	t.Parallel()
	broken := map[string]struct {
		change, mend func(f *flowFixture, t *testing.T, flow id.FlowID)
	}{
		"unknown_phase": {
			change: func(f *flowFixture, t *testing.T, flow id.FlowID) {
				f.setExecution(t, f.NodeID(flow, "d"), "lifecycle_phase = 'napping'")
			},
			mend: func(f *flowFixture, t *testing.T, flow id.FlowID) {
				f.setExecution(t, f.NodeID(flow, "d"), "lifecycle_phase = 'runnable'")
			},
		},
		"owned_although_blocked": {
			change: func(f *flowFixture, t *testing.T, flow id.FlowID) {
				f.setExecution(t, f.NodeID(flow, "d"), "ownership_state = 'leased'")
			},
			mend: func(f *flowFixture, t *testing.T, flow id.FlowID) {
				f.setExecution(t, f.NodeID(flow, "d"), "ownership_state = 'unowned'")
			},
		},
		"unreadable_policy": {
			change: func(f *flowFixture, t *testing.T, flow id.FlowID) {
				f.setGroup(t, flow, "d", `policy = '{"kind": "some_of"}'`)
			},
			mend: func(f *flowFixture, t *testing.T, flow id.FlowID) {
				f.setGroup(t, flow, "d", `policy = '{"kind": "all_of"}'`)
			},
		},
		"no_object": {
			change: func(f *flowFixture, t *testing.T, flow id.FlowID) { f.setGroup(t, flow, "d", `policy = '[]'`) },
			mend:   func(f *flowFixture, t *testing.T, flow id.FlowID) { f.setGroup(t, flow, "d", `policy = '{}'`) },
		},
	}
	ends := map[string]struct {
		settle func(*flowFixture, *testing.T, id.FlowID, ...string)
		event  string
		edge   string
		moved  string
		others storedGroup
	}{
		"success": {(*flowFixture).succeed, "a success", "satisfied success", stateReady, storedGroup{Success: 1, KTarget: 1}},
		"failure": {(*flowFixture).fail, "a failed", "impossible failed", stateSkipped, storedGroup{Fail: 1, KTarget: 1}},
	}
	for brokenName, b := range broken {
		for endName, end := range ends {
			t.Run(brokenName+"_"+endName, func(t *testing.T) {
				f := flowsOn(cloneFixture(t))
				flow := f.draw(t, nil, "a>d", "a>e", "x>y")
				f.claimAll(t)
				d := f.NodeID(flow, "d")
				b.change(f, t, flow)
				before := f.dump(t, d)
				end.settle(f, t, flow, "a", "x") // in one batch with one that is whole
				left := func(event string) {
					t.Helper()
					f.wantUnchanged(t, d, before)
					wantEqual(t, "edges", f.edges(t, flow), map[string]string{"a>d": "applied", "a>e": end.edge, "x>y": end.edge})
					f.wantState(t, f.NodeID(flow, "e"), end.moved)
					f.wantState(t, f.NodeID(flow, "y"), end.moved)
					want := map[string]storedGroup{"d": {Running: 1, KTarget: 1}, "e": end.others, "y": end.others}
					wantEqual(t, "groups", f.groups(t, flow), want)
					got := make(map[string]bool)
					for _, e := range f.completionEvents(t, flow) {
						got[e] = true
					}
					wantEvents := map[string]bool{event: true, "x" + end.event[1:]: true}
					if end.moved == stateSkipped {
						maps.Copy(wantEvents, map[string]bool{"e skipped": true, "y skipped": true})
					}
					wantEqual(t, "events", got, wantEvents)
				}
				left(end.event + " left")
				// The dispatcher meets the same, and leaves it as it is.
				run(t, f.engineOn(t, f.pool, engine.Config{}).Maintenance().DispatchCompletions, 0)
				left(end.event + " left")
				b.mend(f, t, flow)
				run(t, f.engineOn(t, f.pool, engine.Config{}).Maintenance().DispatchCompletions, 1)
				f.wantState(t, d, end.moved)
				f.wantGroup(t, flow, "d", end.others)
				f.wantOneEventOf(t, flow, "a")
				run(t, f.Maintenance().DispatchCompletions, 0)
			})
		}
	}
}

func (f *flowFixture) wantOneEventOf(t *testing.T, flow id.FlowID, key string) {
	t.Helper()
	x := f.NodeID(flow, key)
	if dispatched := texts(t, f.pool, "SELECT (dispatched_at_ms IS NOT NULL)::text FROM ff_completion_event WHERE partition_key = $1 AND execution_id = $2",
		x.Partition(), x.UUID()); len(dispatched) != 1 || dispatched[0] != "true" {
		t.Errorf("%s has events, dispatched: %q", key, dispatched)
	}
}

// The same below what is skipped: the event of the skipped one stays undispatched.
func TestA19_passed_over_on_a_deeper_level(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>b", "b>c", "b>d", "c>e")
	f.setExecution(t, f.NodeID(flow, "c"), "lifecycle_phase = 'napping'")
	f.fail(t, flow, "a")
	f.wantCompletionEvents(t, flow, "a failed", "b skipped left", "d skipped")
	f.setExecution(t, f.NodeID(flow, "c"), "lifecycle_phase = 'submitted'")
	run(t, f.Maintenance().DispatchCompletions, 1)
	f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateSkipped: "b c d e"})
	f.wantGroup(t, flow, "c", storedGroup{Skip: 1, KTarget: 1})
}

// A group that cancels what remains lists nobody while its downstream is passed over.
func TestA19_passed_over_cancels_nobody(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d")
	f.claimAll(t)
	f.setExecution(t, f.NodeID(flow, "d"), "lifecycle_phase = 'napping'")
	f.succeed(t, flow, "a")
	f.wantGroup(t, flow, "d", storedGroup{Running: 2, KTarget: 1})
	f.setExecution(t, f.NodeID(flow, "d"), "lifecycle_phase = 'runnable'")
	run(t, f.Maintenance().DispatchCompletions, 1)
	f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true, Siblings: "b", Enqueued: true})
}

// What decides for itself, or needs no decision, is not left: nobody would ever come to an end with it.
func TestA19_not_left(t *testing.T) {
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
		for endName, settle := range map[string]func(*flowFixture, *testing.T, id.FlowID, ...string){
			"success": (*flowFixture).succeed, "failure": (*flowFixture).fail,
		} {
			t.Run(fmt.Sprintf("%s_%s", name, endName), func(t *testing.T) {
				f := flowsOn(cloneFixture(t))
				flow := f.draw(t, nil, "a>d")
				f.claimAll(t)
				if change == "" {
					f.exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", f.NodeID(flow, "d").UUID())
				} else {
					f.setExecution(t, f.NodeID(flow, "d"), change)
				}
				settle(f, t, flow, "a")
				if n := f.countUndispatched(t); n != 0 {
					t.Errorf("%d events are undispatched", n)
				}
				if got := f.groups(t, flow)["d"]; got.Running != 0 {
					t.Errorf("group %+v", got)
				}
				if got := f.members(t, flow)["d"]; got == stateSkipped {
					t.Error("it was skipped")
				}
			})
		}
	}
}
