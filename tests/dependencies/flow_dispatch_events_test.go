package dependencies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

const replayedElsewhere = "attempt_state = 'pending_replay_attempt'"

// Ends by FlowFabric are resolved like ends by this library; events without possible dependents are only marked.
func TestDispatchEventsOfAnotherEngine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		outcome string
		change  string // of the upstream's row
		want    string // state of the downstream
		counted fixture.StoredGroup
	}{
		{"success", "success", fixture.EndedElsewhere, fixture.StateReady, fixture.StoredGroup{Success: 1, KTarget: 1}},
		{"failed", "failed", fixture.EndedElsewhere, fixture.StateSkipped, fixture.StoredGroup{Fail: 1, KTarget: 1}},
		{"failure", "failure", fixture.EndedElsewhere, fixture.StateSkipped, fixture.StoredGroup{Fail: 1, KTarget: 1}},
		{"cancelled", "cancelled", "lifecycle_phase = 'cancelled'", fixture.StateSkipped, fixture.StoredGroup{Fail: 1, KTarget: 1}},
		{"skipped", "skipped", fixture.EndedElsewhere, fixture.StateSkipped, fixture.StoredGroup{Skip: 1, KTarget: 1}},
		{"unknown", "timed_out", fixture.EndedElsewhere, fixture.StateSkipped, fixture.StoredGroup{Fail: 1, KTarget: 1}},
		{"resumable", "resumable", "", fixture.StateHeld, fixture.StoredGroup{Running: 1, KTarget: 1}},
		// The event decides the end, in any state of the row, unless it was replayed since.
		{"not_terminal", "success", "", fixture.StateReady, fixture.StoredGroup{Success: 1, KTarget: 1}},
		{"replayed", "success", replayedElsewhere, fixture.StateHeld, fixture.StoredGroup{Running: 1, KTarget: 1}},
		{"replayed_and_claimed", "failed", `raw_fields = raw_fields || '{"replay_count": 1}'`, fixture.StateHeld, fixture.StoredGroup{Running: 1, KTarget: 1}},
		{"replay_ended", "success", fixture.EndedElsewhere + `, raw_fields = raw_fields || '{"replay_count": "2"}'`, fixture.StateReady, fixture.StoredGroup{Success: 1, KTarget: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := f.Draw(t, nil, "a>b")
			a := f.NodeID(flow, "a")
			if test.change != "" {
				f.SetExecution(t, a, test.change)
			}
			f.ForeignEvent(t, a, &flow, test.outcome)
			fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
			f.WantState(t, f.NodeID(flow, "b"), test.want)
			f.WantGroup(t, flow, "b", test.counted)
			if events := f.CompletionEvents(t, flow); events[0] != "a "+test.outcome {
				t.Errorf("events %q", events)
			}
			fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 0)
		})
	}
	t.Run("standalone", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		for range 3 {
			f.ForeignEvent(t, f.Create(t), nil, "success")
		}
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 3)
	})
	t.Run("upstream_gone", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>b")
		a := f.NodeID(flow, "a")
		f.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", a.UUID())
		f.ForeignEvent(t, a, &flow, "failed")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.WantState(t, f.NodeID(flow, "b"), fixture.StateSkipped)
	})
	t.Run("several_of_a_flow", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>c", "b>c", "b>d", "e>f")
		for key, outcome := range map[string]string{"a": "success", "b": "failed", "e": "success"} {
			f.SetExecution(t, f.NodeID(flow, key), fixture.EndedElsewhere)
			f.ForeignEvent(t, f.NodeID(flow, key), &flow, outcome)
		}
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 3)
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Fail: 1, KTarget: 2})
		f.WantMembers(t, flow, map[string]string{
			strings.Replace(fixture.StateCompleted, " -", " waiting_for_worker", 1): "a b e", fixture.StateSkipped: "c d", fixture.StateReady: "f",
		})
	})
	t.Run("upstream_held", func(t *testing.T) {
		r := fixture.NewRacers(t, 1)
		flow := r.Draw(t, nil, "a>b", "c>d")
		for _, key := range []string{"a", "c"} {
			r.SetExecution(t, r.NodeID(flow, key), fixture.EndedElsewhere)
			r.ForeignEvent(t, r.NodeID(flow, key), &flow, "success")
		}
		tx := r.BeginTx(t)
		fixture.LockExecution(t, tx, r.NodeID(flow, "a"))
		fixture.Run(t, upkeep.Of(r.Rivals.Engine).DispatchCompletions, 1)
		r.WantState(t, r.NodeID(flow, "d"), fixture.StateReady)
		fixture.Commit(t, tx)
		fixture.Run(t, upkeep.Of(r.Rivals.Engine).DispatchCompletions, 1)
		r.WantState(t, r.NodeID(flow, "b"), fixture.StateReady)
	})
}

// FlowFabric looks an event up by its id alone, or by its execution and the millisecond. Here events of one execution
// in one millisecond are distinct, and so are those of one id in two partitions.
func TestEventsOfOneMillisecondAreDistinct_F46(t *testing.T) {
	t.Parallel()
	t.Run("of one millisecond", func(t *testing.T) {
		f := fixture.CloneFlowFixture(t)
		flow := f.Draw(t, nil, "a>b")
		a := f.NodeID(flow, "a")
		f.SetExecution(t, a, fixture.EndedElsewhere)
		f.ForeignEvent(t, a, &flow, "resumable")
		f.ForeignEvent(t, a, &flow, "success")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 2)
		f.WantState(t, f.NodeID(flow, "b"), fixture.StateReady)
		f.WantGroup(t, flow, "b", fixture.StoredGroup{Success: 1, KTarget: 1})
		f.WantCompletionEvents(t, flow, "a resumable", "a success")
	})
	t.Run("of one id", func(t *testing.T) {
		f := fixture.CloneFlowFixture(t)
		flows := []id.FlowID{f.Draw(t, nil, "a>b")}
		for len(flows) == 1 || fixture.PartitionOf(flows[1]) == fixture.PartitionOf(flows[0]) {
			flows = append(flows[:1], f.Draw(t, nil, "a>b"))
		}
		for i, outcome := range []string{"success", "failed"} {
			a := f.NodeID(flows[i], "a")
			f.SetExecution(t, a, fixture.EndedElsewhere)
			f.Exec(t, `INSERT INTO ff_completion_event (partition_key, event_id, execution_id, flow_id, outcome, occurred_at_ms)
				OVERRIDING SYSTEM VALUE VALUES ($1, 4711, $2, $3, $4, 1)`, a.Partition(), a.UUID(), flows[i], outcome)
		}
		if n, err := upkeep.Of(f.Engine).DispatchCompletions(t.Context(), 10); err != nil || n != 2 {
			t.Errorf("dispatched %d, %v", n, err)
		}
		f.WantState(t, f.NodeID(flows[0], "b"), fixture.StateReady)
		f.WantState(t, f.NodeID(flows[1], "b"), fixture.StateSkipped)
		f.WantCompletionEvents(t, flows[0], "a success")
		f.WantCompletionEvents(t, flows[1], "b skipped", "a failed") // in order of ids
	})
}

// Successes are dispatched beside other successes of their flow.
func TestDispatchedSuccessesShareTheFlow(t *testing.T) {
	r := fixture.NewRacers(t, 1)
	flow := r.Draw(t, nil, "a>b")
	r.SetExecution(t, r.NodeID(flow, "a"), fixture.EndedElsewhere)
	r.ForeignEvent(t, r.NodeID(flow, "a"), &flow, "success")
	tx := r.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
	fixture.Run(t, upkeep.Of(r.Rivals.Engine).DispatchCompletions, 1)
	r.WantState(t, r.NodeID(flow, "b"), fixture.StateReady)
}

// An event whose dispatch the database refuses stays, and delays no other.
func TestDispatchKeepsAFailingEvent(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>b", "c>d")
	other := f.Draw(t, nil, "a>b")
	for _, x := range []id.ExecutionID{f.NodeID(flow, "a"), f.NodeID(flow, "c"), f.NodeID(other, "a")} {
		f.SetExecution(t, x, fixture.EndedElsewhere)
		f.ForeignEvent(t, x, &flow, "success")
	}
	f.Exec(t, "UPDATE ff_completion_event SET flow_id = $1 WHERE execution_id = $2", other, f.NodeID(other, "a").UUID())
	f.Exec(t, fmt.Sprintf("ALTER TABLE ff_exec_core ADD CONSTRAINT fault CHECK (execution_id <> '%s' OR eligibility_state <> 'eligible_now')", f.NodeID(flow, "b").UUID()))
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 2)
	f.WantState(t, f.NodeID(flow, "b"), fixture.StateHeld)
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateReady)
	f.WantState(t, f.NodeID(other, "b"), fixture.StateReady)
	if _, err := upkeep.Of(f.EngineOn(t, f.Pool, engine.Config{})).DispatchCompletions(t.Context(), 10); !errors.Is(err, fferr.ErrTransport) {
		t.Errorf("error %v, want %v: nothing else was to be done", err, fferr.ErrTransport)
	}
	f.Exec(t, "ALTER TABLE ff_exec_core DROP CONSTRAINT fault")
	fixture.Run(t, upkeep.Of(f.EngineOn(t, f.Pool, engine.Config{})).DispatchCompletions, 1)
	f.WantState(t, f.NodeID(flow, "b"), fixture.StateReady)
}

// Locked rows are skipped and hide nothing: a flow, or one row on the way. They are done once they are free.
func TestDispatchSkipsLockedRows(t *testing.T) {
	t.Parallel()
	// Twenty flows of two branches each, whose 65th members are to be skipped.
	begin := func(t *testing.T) (*fixture.Racers, []id.FlowID) {
		r := fixture.NewRacers(t, 4)
		var flows []id.FlowID
		for range 20 {
			spec := tree(2*levelsAtOnce+20, func(i int) int { return max(i-2, 0) })
			flow := r.NewFlowOf(t, spec)
			flows = append(flows, flow)
			r.Fail(t, flow, "0")
			if left := len(spec.Nodes) - 1 - countSkipped(t, r.Flows, flow); left <= 0 {
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
				n, err := upkeep.Of(eng).DispatchCompletions(t.Context(), batch)
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
			tx := r.BeginTx(t)
			for _, flow := range flows[:10] {
				fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
			}
			for _, flow := range flows[10:19] {
				fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE flow_id = $1 FOR UPDATE", flow)
			}
			dispatch(t, r.Rivals.Engine)
			for i, flow := range flows {
				want := 2 * levelsAtOnce
				if i == 19 {
					want = whole
				}
				if n := countSkipped(t, r.Flows, flow); n != want {
					t.Errorf("flow %d has %d skipped members, want %d", i, n, want)
				}
			}
			fixture.Commit(t, tx)
			dispatch(t, r.Rivals.Engine)
			for _, flow := range flows {
				wantOneEventEach(t, r.Flows, flow)
			}
		})
		t.Run(fmt.Sprintf("rows_by_%d", batch), func(t *testing.T) {
			r, flows := begin(t)
			tx := r.BeginTx(t)
			for i, flow := range flows[:19] {
				held := r.NodeID(flow, fmt.Sprint(2*levelsAtOnce+5)) // the third member behind, of one branch
				if i%2 == 0 {
					fixture.ExecIn(t, tx, "SELECT FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = $2 FOR UPDATE", flow, held.UUID())
				} else {
					fixture.LockExecution(t, tx, held)
				}
			}
			for range 4 { // a level behind the other
				dispatch(t, r.Rivals.Engine)
			}
			for i, flow := range flows {
				want := whole - 8 // the nodes on the other branch are skipped, and the nodes before it
				if i == 19 {
					want = whole
				}
				if n := countSkipped(t, r.Flows, flow); n != want {
					t.Errorf("flow %d has %d skipped members, want %d", i, n, want)
				}
			}
			fixture.Commit(t, tx)
			dispatch(t, r.Rivals.Engine)
			for _, flow := range flows {
				wantOneEventEach(t, r.Flows, flow)
			}
		})
	}
}

// A flow whose members end all the time is hardly ever free: after the others it is waited for, a moment.
func TestDispatchWaitsBrieflyForABusyFlow(t *testing.T) {
	r := fixture.NewRacers(t, 2)
	flow := r.NewFlowOf(t, chain(80))
	r.Fail(t, flow, "0")
	tx := r.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
	sent := r.Log.During(func() {
		if n, err := upkeep.Of(r.Rivals.Engine).DispatchCompletions(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("dispatched %d, error %v", n, err)
		}
	})
	if got := fixture.Names(sent); !slices.Contains(got, "LockFlowsExclusive") {
		t.Errorf("sent %q, want a lock that queues", got)
	}
	// Later transactions queue behind it, so that it has its turn when earlier ones have ended.
	wait := fixture.Async(t, func(ctx context.Context) error {
		for {
			if n, err := upkeep.Of(r.Rivals.Engine).DispatchCompletions(ctx, 10); n > 0 || err != nil {
				return err
			}
		}
	})
	r.Rivals.AwaitBlocked(t, r.Fixture)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Error(err)
	}
	wantOneEventEach(t, r.Flows, flow)
}
