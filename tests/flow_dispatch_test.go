package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
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

// dispatcherOnly runs a reconciler that dispatches when it is woken, and hardly does anything else while a test lasts. By
// itself it asks so rarely that a cascade does not depend on it, but what a busy machine makes it pass over is not left for
// ever.
func dispatcherOnly(t *testing.T, eng *engine.Engine) {
	t.Helper()
	r, err := reconcile.New(eng, reconcile.Config{Interval: 5 * time.Second})
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

// awaitDispatched returns once no event is left to be dispatched.
func (f *flowFixture) awaitDispatched(t *testing.T) {
	t.Helper()
	progress.Equal(t, "the last event to be dispatched", 0, func() int { return f.countUndispatched(t) })
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
			progress.Wait(t, "the last member to be skipped", func() (int, bool) {
				return r.countSkipped(t, flow), r.stored(t, r.NodeID(flow, fmt.Sprint(n-1))).State == stateSkipped
			})
			t.Logf("%d members after %v", n, time.Since(began))
			r.awaitDispatched(t)
			r.wantMoves(t, flow, "terminal", links(1, n-1)...)
			r.wantOneEventEach(t, flow)
			if events := r.completionEvents(t, flow); !slices.IsSortedFunc(events, func(a, b string) int { return len(a) - len(b) }) {
				t.Errorf("events not in the order of the levels: %q", events)
			}
		})
	}
}

// Trees of two flows' members, one below the other. The small ones take several transactions for each level that is wide and
// several levels for each transaction. A soak has two of 10,000, which is as many as one call creates.
func TestA1_trees_of_20000(t *testing.T) {
	t.Parallel()
	half := soak.Size(t, 1_500, 10_000)
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
			progress.Equal(t, "all to be skipped", 2*half-1, func() int { return f.countSkipped(t, flow) })
			t.Logf("after %v", time.Since(began))
			f.awaitDispatched(t)
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
	run(t, f.Maintenance().DispatchCompletions, 2) // one event for each transaction
	left(n - 1)
	run(t, f.Maintenance().DispatchCompletions, 0)
}

// A process that ends executions and never dispatches loses nothing: another one finds it when it looks.
func TestA1_left_by_a_process_that_never_dispatches(t *testing.T) {
	r := newRacers(t, 1)
	flow := r.createFlow(t, chain(300))
	if err := r.failed(t.Context(), r.lease(t, flow, "0")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Maintenance().Undispatched():
		t.Error("this engine left nothing")
	default:
	}
	reconcileWith(t, r.Engine, 2)
	progress.Equal(t, "the last member to be skipped", 299, func() int { return r.countSkipped(t, flow) })
	r.awaitDispatched(t)
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
			wait := async(t, func(ctx context.Context) error {
				_, err := r.rivals.Maintenance().DispatchCompletions(ctx, 10)
				return err
			})
			await(t, "the dispatcher to be stopped", func() bool {
				return len(texts(t, r.pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'", r.rivals.name)) == 1
			})
			// To the end of the session, which hears of its death before the server has let its locks go: the first of what
			// follows would find the flow held.
			ended := texts(t, r.pool, `SELECT pg_terminate_backend(pid, $2)::text FROM pg_stat_activity
				WHERE application_name = $1 AND wait_event = 'PgSleep'`, r.rivals.name, time.Hour.Milliseconds())
			if !slices.Equal(ended, []string{"true"}) {
				t.Fatalf("the dispatcher's session ended: %v", ended)
			}
			if err := wait(); err == nil {
				t.Error("the dispatcher was not told of its death")
			}
			before := levelsAtOnce * ((at - 1) / levelsAtOnce)
			if n := r.countSkipped(t, flow); n != before {
				t.Errorf("%d are skipped, want the %d of whole transactions", n, before)
			}
			r.exec(t, "DROP TRIGGER stop ON ff_exec_core")
			if _, err := r.Maintenance().DispatchCompletions(t.Context(), 10); err != nil {
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
	dispatch := func(ctx context.Context) error {
		_, err := r.rivals.Maintenance().DispatchCompletions(ctx, 1)
		return err
	}
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
		case <-f.Maintenance().Undispatched():
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
	run(t, f.Maintenance().DispatchCompletions, 1)
	if told() {
		t.Error("told although the end is reached")
	}
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
			run(t, f.WithTx(tx).Maintenance().DispatchCompletions, 3)
			if n := f.countSkipped(t, flow); n != levelsAtOnce {
				t.Errorf("%d skipped before the commit", n)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			tx = beginWith(t, f.pool, pgx.TxOptions{IsoLevel: level})
			run(t, f.WithTx(tx).Maintenance().DispatchCompletions, 3)
			commit(t, tx)
			f.wantOneEventEach(t, flow)
		})
	}
}

func TestA1_dispatch_refuses(t *testing.T) {
	f := newFixture(t)
	for _, batch := range []int{-1, 0, engine.MaxBatch + 1} {
		if _, err := f.Maintenance().DispatchCompletions(t.Context(), batch); !errors.Is(err, engine.ErrInvalidInput) {
			t.Errorf("a batch of %d: %v", batch, err)
		}
	}
}
