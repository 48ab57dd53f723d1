package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/reconcile"
)

// levelsAtOnce is how many levels of skipped executions one transaction writes.
const levelsAtOnce = 64

// chain is a flow of nodes 0 to n-1 in which each waits for the one before.
func chain(n int) engine.FlowSpec { return tree(n, func(i int) int { return i - 1 }) }

// tree is a flow of nodes 0 to n-1 in which each but the first waits for one before it.
func tree(n int, parent func(int) int) engine.FlowSpec {
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	for i := range n {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
		if i > 0 {
			spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(parent(i)), To: fmt.Sprint(i)})
		}
	}
	return spec
}

// members of a chain from one to another, both included.
func links(from, to int) []string {
	var keys []string
	for i := from; i <= to; i++ {
		keys = append(keys, fmt.Sprint(i))
	}
	return keys
}

// dispatcherOnly runs a reconciler that dispatches when it is woken, and does nothing else while a test lasts.
func dispatcherOnly(t *testing.T, eng *engine.Engine) {
	t.Helper()
	r, err := reconcile.New(eng, reconcile.Config{
		LeaseExpiry: time.Hour, DelayedPromotion: time.Hour, AttemptTimeout: time.Hour, ExecutionDeadline: time.Hour,
		CreationKeys: time.Hour, QueueRepair: time.Hour, Dispatch: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (f *flowFixture) countSkipped(t *testing.T, flow id.FlowID) int {
	t.Helper()
	return one[struct{ N int }](t, f.pool, `
		SELECT count(*)::integer AS n FROM ff_exec_core
		WHERE partition_key = $1::smallint AND flow_id = $2::uuid AND public_state = 'skipped'`, partitionOf(flow), flow).N
}

func (f *flowFixture) countUndispatched(t *testing.T) int {
	t.Helper()
	return one[struct{ N int }](t, f.pool, "SELECT count(*)::integer AS n FROM ff_completion_event WHERE dispatched_at_ms IS NULL").N
}

// wantOneEventEach fails the test unless every member of a flow, all of which have ended, has one event, dispatched.
func (f *flowFixture) wantOneEventEach(t *testing.T, flow id.FlowID) {
	t.Helper()
	type row struct{ Members, Ended, Events, Undispatched int }
	got := one[row](t, f.pool, `
		SELECT
			(SELECT count(*) FROM ff_exec_core AS e WHERE e.partition_key = $1::smallint AND e.flow_id = $2::uuid)::integer AS members,
			count(DISTINCT execution_id)::integer AS ended,
			count(*)::integer AS events,
			count(*) FILTER (WHERE dispatched_at_ms IS NULL)::integer AS undispatched
		FROM ff_completion_event AS c WHERE c.partition_key = $1::smallint AND c.flow_id = $2::uuid`, partitionOf(flow), flow)
	if got.Ended != got.Members || got.Events != got.Members || got.Undispatched != 0 {
		t.Errorf("%d members, of which %d have ended, by %d events, %d of them undispatched", got.Members, got.Ended, got.Events, got.Undispatched)
	}
}

// A skip goes on to its end by itself, however deep it is, and right away: nothing here looks for it.
func TestA1_skips_of_any_depth(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, levelsAtOnce, levelsAtOnce + 1, levelsAtOnce + 2, 80, 200, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRacers(t, 1)
			dispatcherOnly(t, r.Engine)
			flow := r.createFlow(t, chain(n))
			began := time.Now()
			r.fail(t, flow, "0")
			await(t, "the last member to be skipped", func() bool {
				return r.stored(t, r.NodeID(flow, fmt.Sprint(n-1))).State == stateSkipped
			})
			t.Logf("%d members after %v", n, time.Since(began))
			await(t, "the last event to be dispatched", func() bool { return r.countUndispatched(t) == 0 })
			r.wantMoves(t, flow, "terminal", links(1, n-1)...)
			r.wantOneEventEach(t, flow)
			if events := r.completionEvents(t, flow); !slices.IsSortedFunc(events, func(a, b string) int { return len(a) - len(b) }) {
				t.Errorf("events not in the order of the levels: %q", events)
			}
		})
	}
}

// Trees of 20,000 members: two of 10,000, which is as many as one call creates, one below the other.
func TestA1_trees_of_20000(t *testing.T) {
	t.Parallel()
	const half = 10_000
	for name, parent := range map[string]func(int) int{
		"fan_out_2":  func(i int) int { return (i - 1) / 2 },
		"fan_out_10": func(i int) int { return (i - 1) / 10 },
		"20_deep_chains": func(i int) int { // 500 levels each
			return max(i-20, 0)
		},
		"wide_on_the_last_level": func(i int) int { // of a transaction: there begin 100 branches
			return max(min(i-1, levelsAtOnce), i-100)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			dispatcherOnly(t, f.Engine)
			flow := f.createFlow(t, tree(half, parent))
			below := tree(half, parent)
			for partitionOf(below.ID) != partitionOf(flow) {
				below.ID = id.NewFlowID()
			}
			f.createFlow(t, below)
			f.exec(t, "UPDATE ff_edge SET flow_id = $1 WHERE flow_id = $2", flow, below.ID)
			f.exec(t, "UPDATE ff_edge_group SET flow_id = $1 WHERE flow_id = $2", flow, below.ID)
			root := f.NodeID(below.ID, "0")
			f.exec(t, `UPDATE ff_exec_core SET flow_id = $1,
				eligibility_state = CASE WHEN execution_id = $3 THEN 'blocked_by_dependencies' ELSE eligibility_state END
				WHERE flow_id = $2`, flow, below.ID, root.UUID())
			f.insert(t, "ff_edge", columns{
				"partition_key": partitionOf(flow), "flow_id": flow, "edge_id": id.NewEdgeID(), "upstream_eid": f.NodeID(flow, fmt.Sprint(half-1)).UUID(),
				"downstream_eid": root.UUID(), "policy": `{"edge_state": "applied", "applied_at_ms": 1}`,
			}, nil)
			f.insert(t, "ff_edge_group", columns{
				"partition_key": partitionOf(flow), "flow_id": flow, "downstream_eid": root.UUID(), "policy": `{"kind": "all_of"}`,
				"running_count": 1, "k_target": 1,
			}, nil)
			began := time.Now()
			f.fail(t, flow, "0")
			await(t, "all to be skipped", func() bool { return f.countSkipped(t, flow) == 2*half-1 })
			t.Logf("after %v", time.Since(began))
			await(t, "the last event to be dispatched", func() bool { return f.countUndispatched(t) == 0 })
			f.wantOneEventEach(t, flow)
		})
	}
}

// What one transaction leaves: its last level has ended, its events are undispatched, and its edges are open.
func TestA1_what_a_transaction_leaves(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	const n = 2*levelsAtOnce + 10
	flow := f.createFlow(t, chain(n))
	left := func(skipped int) {
		t.Helper()
		members, edges, groups := map[string]string{"0": stateFailed}, make(map[string]string), make(map[string]storedGroup)
		events := []string{"0 failed"}
		for i := 1; i < n; i++ {
			key, edge := fmt.Sprint(i), fmt.Sprintf("%d>%d", i-1, i)
			switch {
			case i > skipped:
				members[key], edges[edge], groups[key] = stateHeld, "applied", storedGroup{Running: 1, KTarget: 1}
			case i == 1:
				members[key], edges[edge], groups[key] = stateSkipped, "impossible failed", storedGroup{Fail: 1, KTarget: 1}
				events = append(events, "1 skipped")
			default:
				members[key], edges[edge], groups[key] = stateSkipped, "impossible skipped", storedGroup{Skip: 1, KTarget: 1}
				events = append(events, key+" skipped")
			}
		}
		if skipped < n-1 {
			events[skipped] += " left"
		}
		wantEqual(t, "members", f.members(t, flow), members)
		wantEqual(t, "edges", f.edges(t, flow), edges)
		wantEqual(t, "groups", f.groups(t, flow), groups)
		f.wantCompletionEvents(t, flow, events...)
	}
	f.fail(t, flow, "0")
	left(levelsAtOnce)
	run(t, f.DispatchCompletions, 2) // one event for each transaction
	left(n - 1)
	run(t, f.DispatchCompletions, 0)
}

// A process that ends executions and never dispatches loses nothing: another one finds it when it looks.
func TestA1_left_by_a_process_that_never_dispatches(t *testing.T) {
	r := newRacers(t, 1)
	flow := r.createFlow(t, chain(300))
	if err := r.failed(t.Context(), r.lease(t, flow, "0")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Undispatched():
		t.Error("this engine left nothing")
	default:
	}
	reconcileWith(t, r.Engine, 2)
	await(t, "the last member to be skipped", func() bool { return r.countSkipped(t, flow) == 299 })
	await(t, "the last event to be dispatched", func() bool { return r.countUndispatched(t) == 0 })
	r.wantMoves(t, flow, "terminal", links(1, 299)...)
	r.wantOneEventEach(t, flow)
}

// A dispatcher that dies between two levels takes back what it had done of its transaction, and nothing else. Whoever
// looks next goes on there, and every member is skipped once, those of a last level too.
func TestA1_dispatcher_killed_between_levels(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{
		"first_level": levelsAtOnce + 1, "between": levelsAtOnce + 30, "last_level": 2 * levelsAtOnce, "second_transaction": 2*levelsAtOnce + 1,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRacers(t, 2)
			flow := r.createFlow(t, chain(200))
			r.fail(t, flow, "0")
			// It stops where it writes this member, until it is killed.
			r.exec(t, fmt.Sprintf(`
				CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN NEW; END';
				CREATE TRIGGER stop BEFORE UPDATE ON ff_exec_core FOR EACH ROW
				WHEN (NEW.execution_id = '%s' AND NEW.public_state = 'skipped') EXECUTE FUNCTION stop()`, r.NodeID(flow, fmt.Sprint(at)).UUID()))
			wait := async(t, func(ctx context.Context) error { _, err := r.rivals.DispatchCompletions(ctx, 10); return err })
			await(t, "the dispatcher to be stopped", func() bool {
				return len(texts(t, r.pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'", r.rivals.name)) == 1
			})
			r.exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'", r.rivals.name)
			if err := wait(); err == nil {
				t.Error("the dispatcher was not told of its death")
			}
			before := levelsAtOnce * ((at - 1) / levelsAtOnce)
			if n := r.countSkipped(t, flow); n != before {
				t.Errorf("%d are skipped, want the %d of whole transactions", n, before)
			}
			r.exec(t, "DROP TRIGGER stop ON ff_exec_core")
			if _, err := r.DispatchCompletions(t.Context(), 10); err != nil {
				t.Error(err)
			}
			r.wantMoves(t, flow, "terminal", links(1, 199)...)
			r.wantOneEventEach(t, flow)
		})
	}
}

// Several dispatchers at once do the work of one.
func TestA1_dispatchers_at_once(t *testing.T) {
	r := newRacers(t, 8)
	var flows []id.FlowID
	for range 4 {
		flow := r.createFlow(t, chain(150))
		flows = append(flows, flow)
		r.fail(t, flow, "0")
	}
	dispatch := func(ctx context.Context) error { _, err := r.rivals.DispatchCompletions(ctx, 1); return err }
	for r.countUndispatched(t) > 0 {
		if err := together(t.Context(), dispatch, dispatch, dispatch, dispatch); err != nil {
			t.Fatal(err)
		}
	}
	for _, flow := range flows {
		if n := r.countSkipped(t, flow); n != 149 {
			t.Errorf("%d of %s are skipped", n, flow)
		}
		r.wantOneEventEach(t, flow)
	}
	r.wantNoAborts(t)
}

// An engine tells of what its own transactions left, once they are committed.
func TestA1_tells_of_what_is_left(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	told := func() bool {
		select {
		case <-f.Undispatched():
			return true
		default:
			return false
		}
	}
	deep := f.createFlow(t, chain(80))
	flat := f.createFlow(t, chain(levelsAtOnce))
	f.fail(t, flat, "0")
	if told() {
		t.Error("told although nothing is left")
	}
	tx := f.begin(t)
	if _, err := f.WithTx(tx).FailExecution(t.Context(), f.lease(t, deep, "0"), forGood); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told() {
		t.Error("told of a transaction that was rolled back")
	}
	f.fail(t, deep, "0")
	if !told() {
		t.Error("not told")
	}
	run(t, f.DispatchCompletions, 1)
	if told() {
		t.Error("told although the end is reached")
	}
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
				n, err := eng.DispatchCompletions(t.Context(), batch)
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
		if n, err := r.rivals.DispatchCompletions(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("dispatched %d, error %v", n, err)
		}
	})
	if got := names(sent); !slices.Contains(got, "LockFlowsExclusive") {
		t.Errorf("sent %q, want a lock that queues", got)
	}
	// Whoever comes while it waits queues behind it, so that it has its turn when those before have ended.
	wait := async(t, func(ctx context.Context) error {
		for {
			if n, err := r.rivals.DispatchCompletions(ctx, 10); n > 0 || err != nil {
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
			run(t, f.DispatchCompletions, 1)
			f.wantState(t, f.NodeID(flow, "b"), test.want)
			f.wantGroup(t, flow, "b", test.counted)
			if events := f.completionEvents(t, flow); events[0] != "a "+test.outcome {
				t.Errorf("events %q", events)
			}
			run(t, f.DispatchCompletions, 0)
		})
	}
	t.Run("standalone", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		for range 3 {
			f.foreignEvent(t, f.create(t), nil, "success")
		}
		run(t, f.DispatchCompletions, 3)
	})
	t.Run("upstream_gone", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>b")
		a := f.NodeID(flow, "a")
		f.exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", a.UUID())
		f.foreignEvent(t, a, &flow, "failed")
		run(t, f.DispatchCompletions, 1)
		f.wantState(t, f.NodeID(flow, "b"), stateSkipped)
	})
	t.Run("several_of_a_flow", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>c", "b>c", "b>d", "e>f")
		for key, outcome := range map[string]string{"a": "success", "b": "failed", "e": "success"} {
			f.setExecution(t, f.NodeID(flow, key), endedElsewhere)
			f.foreignEvent(t, f.NodeID(flow, key), &flow, outcome)
		}
		run(t, f.DispatchCompletions, 3)
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
		run(t, r.rivals.DispatchCompletions, 1)
		r.wantState(t, r.NodeID(flow, "d"), stateReady)
		commit(t, tx)
		run(t, r.rivals.DispatchCompletions, 1)
		r.wantState(t, r.NodeID(flow, "b"), stateReady)
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
	run(t, r.rivals.DispatchCompletions, 1)
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
	run(t, f.DispatchCompletions, 2)
	f.wantState(t, f.NodeID(flow, "b"), stateHeld)
	f.wantState(t, f.NodeID(flow, "d"), stateReady)
	f.wantState(t, f.NodeID(other, "b"), stateReady)
	if _, err := f.engineOn(t, f.pool, engine.Config{}).DispatchCompletions(t.Context(), 10); !errors.Is(err, engine.ErrTransport) {
		t.Errorf("error %v, want %v: nothing else was to be done", err, engine.ErrTransport)
	}
	f.exec(t, "ALTER TABLE ff_exec_core DROP CONSTRAINT fault")
	run(t, f.engineOn(t, f.pool, engine.Config{}).DispatchCompletions, 1)
	f.wantState(t, f.NodeID(flow, "b"), stateReady)
}

// In the caller's transaction the whole skip is part of it.
func TestA1_dispatch_in_a_transaction(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			flow := f.createFlow(t, chain(200))
			f.fail(t, flow, "0")
			tx := beginWith(t, f.pool, pgx.TxOptions{IsoLevel: level})
			run(t, f.WithTx(tx).DispatchCompletions, 3)
			if n := f.countSkipped(t, flow); n != levelsAtOnce {
				t.Errorf("%d skipped before the commit", n)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			tx = beginWith(t, f.pool, pgx.TxOptions{IsoLevel: level})
			run(t, f.WithTx(tx).DispatchCompletions, 3)
			commit(t, tx)
			f.wantOneEventEach(t, flow)
		})
	}
}

func TestA1_dispatch_refuses(t *testing.T) {
	f := newFixture(t)
	for _, batch := range []int{-1, 0, engine.MaxBatch + 1} {
		if _, err := f.DispatchCompletions(t.Context(), batch); !errors.Is(err, engine.ErrInvalidInput) {
			t.Errorf("a batch of %d: %v", batch, err)
		}
	}
}
