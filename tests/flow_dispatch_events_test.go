package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// foreignEvent writes a completion event as FlowFabric does, whose dispatcher has not seen it.
func (f *flowFixture) foreignEvent(t *testing.T, x id.ExecutionID, flow *id.FlowID, outcome string) {
	t.Helper()
	f.insert(t, "ff_completion_event", columns{
		"partition_key": x.Partition(), "execution_id": x.UUID(), "flow_id": flow, "outcome": outcome, "occurred_at_ms": f.now().UnixMilli(),
	}, nil)
}

const (
	endedElsewhere = `lifecycle_phase = 'terminal', eligibility_state = 'not_applicable', public_state = 'completed',
		attempt_state = 'attempt_terminal', terminal_at_ms = 1`
	replayedElsewhere = "attempt_state = 'pending_replay_attempt'"
)

// What FlowFabric ended is resolved as what this library ends; events that nothing can depend on are only marked.
func TestA1_events_of_another_engine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		outcome string
		change  string // of the upstream's row
		want    string // state of the downstream
		counted storedGroup
	}{
		{"success", "success", endedElsewhere, stateReady, storedGroup{Success: 1, KTarget: 1}},
		{"failed", "failed", endedElsewhere, stateSkipped, storedGroup{Fail: 1, KTarget: 1}},
		{"failure", "failure", endedElsewhere, stateSkipped, storedGroup{Fail: 1, KTarget: 1}},
		{"cancelled", "cancelled", "lifecycle_phase = 'cancelled'", stateSkipped, storedGroup{Fail: 1, KTarget: 1}},
		{"skipped", "skipped", endedElsewhere, stateSkipped, storedGroup{Skip: 1, KTarget: 1}},
		{"unknown", "timed_out", endedElsewhere, stateSkipped, storedGroup{Fail: 1, KTarget: 1}},
		{"resumable", "resumable", "", stateHeld, storedGroup{Running: 1, KTarget: 1}},
		// The event tells of the end, whatever the row shows, unless it was replayed since.
		{"not_terminal", "success", "", stateReady, storedGroup{Success: 1, KTarget: 1}},
		{"replayed", "success", replayedElsewhere, stateHeld, storedGroup{Running: 1, KTarget: 1}},
		{"replayed_and_claimed", "failed", `raw_fields = raw_fields || '{"replay_count": 1}'`, stateHeld, storedGroup{Running: 1, KTarget: 1}},
		{"replay_ended", "success", endedElsewhere + `, raw_fields = raw_fields || '{"replay_count": "2"}'`, stateReady, storedGroup{Success: 1, KTarget: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			flow := f.draw(t, nil, "a>b")
			a := f.NodeID(flow, "a")
			if test.change != "" {
				f.setExecution(t, a, test.change)
			}
			f.foreignEvent(t, a, &flow, test.outcome)
			run(t, f.Maintenance().DispatchCompletions, 1)
			f.wantState(t, f.NodeID(flow, "b"), test.want)
			f.wantGroup(t, flow, "b", test.counted)
			if events := f.completionEvents(t, flow); events[0] != "a "+test.outcome {
				t.Errorf("events %q", events)
			}
			run(t, f.Maintenance().DispatchCompletions, 0)
		})
	}
	t.Run("standalone", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		for range 3 {
			f.foreignEvent(t, f.create(t), nil, "success")
		}
		run(t, f.Maintenance().DispatchCompletions, 3)
	})
	t.Run("upstream_gone", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>b")
		a := f.NodeID(flow, "a")
		f.exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", a.UUID())
		f.foreignEvent(t, a, &flow, "failed")
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.wantState(t, f.NodeID(flow, "b"), stateSkipped)
	})
	t.Run("several_of_a_flow", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>c", "b>c", "b>d", "e>f")
		for key, outcome := range map[string]string{"a": "success", "b": "failed", "e": "success"} {
			f.setExecution(t, f.NodeID(flow, key), endedElsewhere)
			f.foreignEvent(t, f.NodeID(flow, key), &flow, outcome)
		}
		run(t, f.Maintenance().DispatchCompletions, 3)
		f.wantGroup(t, flow, "c", storedGroup{Success: 1, Fail: 1, KTarget: 2})
		f.wantMembers(t, flow, map[string]string{
			strings.Replace(stateCompleted, " -", " waiting_for_worker", 1): "a b e", stateSkipped: "c d", stateReady: "f",
		})
	})
	t.Run("upstream_held", func(t *testing.T) {
		r := newRacers(t, 1)
		flow := r.draw(t, nil, "a>b", "c>d")
		for _, key := range []string{"a", "c"} {
			r.setExecution(t, r.NodeID(flow, key), endedElsewhere)
			r.foreignEvent(t, r.NodeID(flow, key), &flow, "success")
		}
		tx := r.begin(t)
		lockExecution(t, tx, r.NodeID(flow, "a"))
		run(t, r.rivals.Maintenance().DispatchCompletions, 1)
		r.wantState(t, r.NodeID(flow, "d"), stateReady)
		commit(t, tx)
		run(t, r.rivals.Maintenance().DispatchCompletions, 1)
		r.wantState(t, r.NodeID(flow, "b"), stateReady)
	})
}

// FlowFabric looks an event up by its id alone, or by its execution and the millisecond. Here those of one execution in one
// millisecond are told apart, and those of one id in two partitions.
func TestF46_events_are_told_apart(t *testing.T) {
	t.Parallel()
	t.Run("of one millisecond", func(t *testing.T) {
		f := cloneFlowFixture(t)
		flow := f.draw(t, nil, "a>b")
		a := f.NodeID(flow, "a")
		f.setExecution(t, a, endedElsewhere)
		f.foreignEvent(t, a, &flow, "resumable")
		f.foreignEvent(t, a, &flow, "success")
		run(t, f.Maintenance().DispatchCompletions, 2)
		f.wantState(t, f.NodeID(flow, "b"), stateReady)
		f.wantGroup(t, flow, "b", storedGroup{Success: 1, KTarget: 1})
		f.wantCompletionEvents(t, flow, "a resumable", "a success")
	})
	t.Run("of one id", func(t *testing.T) {
		f := cloneFlowFixture(t)
		flows := []id.FlowID{f.draw(t, nil, "a>b")}
		for len(flows) == 1 || partitionOf(flows[1]) == partitionOf(flows[0]) {
			flows = append(flows[:1], f.draw(t, nil, "a>b"))
		}
		for i, outcome := range []string{"success", "failed"} {
			a := f.NodeID(flows[i], "a")
			f.setExecution(t, a, endedElsewhere)
			f.exec(t, `INSERT INTO ff_completion_event (partition_key, event_id, execution_id, flow_id, outcome, occurred_at_ms)
				OVERRIDING SYSTEM VALUE VALUES ($1, 4711, $2, $3, $4, 1)`, a.Partition(), a.UUID(), flows[i], outcome)
		}
		if n, err := f.Maintenance().DispatchCompletions(t.Context(), 10); err != nil || n != 2 {
			t.Errorf("dispatched %d, %v", n, err)
		}
		f.wantState(t, f.NodeID(flows[0], "b"), stateReady)
		f.wantState(t, f.NodeID(flows[1], "b"), stateSkipped)
		f.wantCompletionEvents(t, flows[0], "a success")
		f.wantCompletionEvents(t, flows[1], "b skipped", "a failed") // in order of ids
	})
}

// Successes are dispatched beside other successes of their flow.
func TestA1_successes_share_the_flow(t *testing.T) {
	r := newRacers(t, 1)
	flow := r.draw(t, nil, "a>b")
	r.setExecution(t, r.NodeID(flow, "a"), endedElsewhere)
	r.foreignEvent(t, r.NodeID(flow, "a"), &flow, "success")
	tx := r.begin(t)
	execIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
	run(t, r.rivals.Maintenance().DispatchCompletions, 1)
	r.wantState(t, r.NodeID(flow, "b"), stateReady)
}

// An event whose dispatch the database refuses stays, and holds nobody up.
func TestA1_an_event_that_fails(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, nil, "a>b", "c>d")
	other := f.draw(t, nil, "a>b")
	for _, x := range []id.ExecutionID{f.NodeID(flow, "a"), f.NodeID(flow, "c"), f.NodeID(other, "a")} {
		f.setExecution(t, x, endedElsewhere)
		f.foreignEvent(t, x, &flow, "success")
	}
	f.exec(t, "UPDATE ff_completion_event SET flow_id = $1 WHERE execution_id = $2", other, f.NodeID(other, "a").UUID())
	f.exec(t, fmt.Sprintf("ALTER TABLE ff_exec_core ADD CONSTRAINT fault CHECK (execution_id <> '%s' OR eligibility_state <> 'eligible_now')", f.NodeID(flow, "b").UUID()))
	run(t, f.Maintenance().DispatchCompletions, 2)
	f.wantState(t, f.NodeID(flow, "b"), stateHeld)
	f.wantState(t, f.NodeID(flow, "d"), stateReady)
	f.wantState(t, f.NodeID(other, "b"), stateReady)
	if _, err := f.engineOn(t, f.pool, engine.Config{}).Maintenance().DispatchCompletions(t.Context(), 10); !errors.Is(err, engine.ErrTransport) {
		t.Errorf("error %v, want %v: nothing else was to be done", err, engine.ErrTransport)
	}
	f.exec(t, "ALTER TABLE ff_exec_core DROP CONSTRAINT fault")
	run(t, f.engineOn(t, f.pool, engine.Config{}).Maintenance().DispatchCompletions, 1)
	f.wantState(t, f.NodeID(flow, "b"), stateReady)
}

// What others hold is passed over and hides nothing: a flow, or one row on the way. It is done when it is free.
func TestA1_passes_over_what_is_held(t *testing.T) {
	t.Parallel()
	// Twenty flows of two branches each, whose 65th members are to be skipped.
	begin := func(t *testing.T) (*racers, []id.FlowID) {
		r := newRacers(t, 4)
		var flows []id.FlowID
		for range 20 {
			spec := tree(2*levelsAtOnce+20, func(i int) int { return max(i-2, 0) })
			flow := r.createFlow(t, spec)
			flows = append(flows, flow)
			r.fail(t, flow, "0")
			if left := len(spec.Nodes) - 1 - r.countSkipped(t, flow); left <= 0 {
				t.Fatalf("%d are left of %s", left, flow)
			}
		}
		return r, flows
	}
	const whole = 2*levelsAtOnce + 19
	for _, batch := range []int{1, 7, 1000} {
		dispatch := func(t *testing.T, eng *engine.Engine) {
			t.Helper()
			for {
				n, err := eng.Maintenance().DispatchCompletions(t.Context(), batch)
				if err != nil {
					t.Fatal(err)
				}
				if n < batch {
					return
				}
			}
		}
		t.Run(fmt.Sprintf("flows_by_%d", batch), func(t *testing.T) {
			r, flows := begin(t)
			tx := r.begin(t)
			for _, flow := range flows[:10] {
				execIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
			}
			for _, flow := range flows[10:19] {
				execIn(t, tx, "SELECT FROM ff_flow_core WHERE flow_id = $1 FOR UPDATE", flow)
			}
			dispatch(t, r.rivals.Engine)
			for i, flow := range flows {
				want := 2 * levelsAtOnce
				if i == 19 {
					want = whole
				}
				if n := r.countSkipped(t, flow); n != want {
					t.Errorf("flow %d has %d skipped members, want %d", i, n, want)
				}
			}
			commit(t, tx)
			dispatch(t, r.rivals.Engine)
			for _, flow := range flows {
				r.wantOneEventEach(t, flow)
			}
		})
		t.Run(fmt.Sprintf("rows_by_%d", batch), func(t *testing.T) {
			r, flows := begin(t)
			tx := r.begin(t)
			for i, flow := range flows[:19] {
				held := r.NodeID(flow, fmt.Sprint(2*levelsAtOnce+5)) // the third member behind, of one branch
				if i%2 == 0 {
					execIn(t, tx, "SELECT FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = $2 FOR UPDATE", flow, held.UUID())
				} else {
					lockExecution(t, tx, held)
				}
			}
			for range 4 { // a level behind the other
				dispatch(t, r.rivals.Engine)
			}
			for i, flow := range flows {
				want := whole - 8 // what stands on the other branch is skipped, and what stands before it
				if i == 19 {
					want = whole
				}
				if n := r.countSkipped(t, flow); n != want {
					t.Errorf("flow %d has %d skipped members, want %d", i, n, want)
				}
			}
			commit(t, tx)
			dispatch(t, r.rivals.Engine)
			for _, flow := range flows {
				r.wantOneEventEach(t, flow)
			}
		})
	}
}

// A flow whose members end all the time is hardly ever free: after the others it is waited for, a moment.
func TestA1_waits_a_moment_for_a_busy_flow(t *testing.T) {
	r := newRacers(t, 2)
	flow := r.createFlow(t, chain(80))
	r.fail(t, flow, "0")
	tx := r.begin(t)
	execIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
	sent := r.log.during(func() {
		if n, err := r.rivals.Maintenance().DispatchCompletions(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("dispatched %d, error %v", n, err)
		}
	})
	if got := names(sent); !slices.Contains(got, "LockFlowsExclusive") {
		t.Errorf("sent %q, want a lock that queues", got)
	}
	// Whoever comes while it waits queues behind it, so that it has its turn when those before have ended.
	wait := async(t, func(ctx context.Context) error {
		for {
			if n, err := r.rivals.Maintenance().DispatchCompletions(ctx, 10); n > 0 || err != nil {
				return err
			}
		}
	})
	r.rivals.awaitBlocked(t, r.fixture)
	commit(t, tx)
	if err := wait(); err != nil {
		t.Error(err)
	}
	r.wantOneEventEach(t, flow)
}
