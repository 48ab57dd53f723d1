package dependencies

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
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
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

// dispatcherOnly runs a reconciler that dispatches when it is woken, and hardly does anything else during a test. It
// polls so rarely that a cascade does not depend on it, but rows skipped on a busy machine are not left for ever.
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

func countSkipped(t *testing.T, f *fixture.Flows, flow id.FlowID) int {
	t.Helper()
	return fixture.One[struct{ N int }](t, f.Pool, `
		SELECT count(*)::integer AS n FROM ff_exec_core
		WHERE partition_key = $1::smallint AND flow_id = $2::uuid AND public_state = 'skipped'`, fixture.PartitionOf(flow), flow).N
}

func countUndispatched(t *testing.T, f *fixture.Flows) int {
	t.Helper()
	return fixture.One[struct{ N int }](t, f.Pool, "SELECT count(*)::integer AS n FROM ff_completion_event WHERE dispatched_at_ms IS NULL").N
}

// awaitDispatched returns once no event is left to be dispatched.
func awaitDispatched(t *testing.T, f *fixture.Flows) {
	t.Helper()
	progress.Equal(t, "the last event to be dispatched", 0, func() int { return countUndispatched(t, f) })
}

// wantOneEventEach fails the test unless each of a flow's members, all ended, has one event, dispatched.
func wantOneEventEach(t *testing.T, f *fixture.Flows, flow id.FlowID) {
	t.Helper()
	type row struct{ Members, Ended, Events, Undispatched int }
	got := fixture.One[row](t, f.Pool, `
		SELECT
			(SELECT count(*) FROM ff_exec_core AS e WHERE e.partition_key = $1::smallint AND e.flow_id = $2::uuid)::integer AS members,
			count(DISTINCT execution_id)::integer AS ended,
			count(*)::integer AS events,
			count(*) FILTER (WHERE dispatched_at_ms IS NULL)::integer AS undispatched
		FROM ff_completion_event AS c WHERE c.partition_key = $1::smallint AND c.flow_id = $2::uuid`, fixture.PartitionOf(flow), flow)
	if got.Ended != got.Members || got.Events != got.Members || got.Undispatched != 0 {
		t.Errorf("%d members, of which %d have ended, by %d events, %d of them undispatched", got.Members, got.Ended, got.Events, got.Undispatched)
	}
}

// A skip goes on to its end by itself, however deep it is, and right away: nothing here looks for it.
func TestSkipReachesAnyDepth(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, levelsAtOnce, levelsAtOnce + 1, levelsAtOnce + 2, 80, soak.Size(t, 200, 1000)} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := fixture.NewRacers(t, 1)
			dispatcherOnly(t, r.Engine)
			flow := r.NewFlowOf(t, chain(n))
			began := time.Now()
			r.Fail(t, flow, "0")
			progress.Wait(t, "the last member to be skipped", func() (int, bool) {
				return countSkipped(t, r.Flows, flow), r.Stored(t, r.NodeID(flow, fmt.Sprint(n-1))).State == fixture.StateSkipped
			})
			t.Logf("%d members after %v", n, time.Since(began))
			awaitDispatched(t, r.Flows)
			r.WantMoves(t, flow, "terminal", links(1, n-1)...)
			wantOneEventEach(t, r.Flows, flow)
			if events := r.CompletionEvents(t, flow); !slices.IsSortedFunc(events, func(a, b string) int { return len(a) - len(b) }) {
				t.Errorf("events not in the order of the levels: %q", events)
			}
		})
	}
}

// Trees of two flows' members, one below the other. The small ones take several transactions for each level that is wide and
// several levels for each transaction. A soak has two of 10,000, which is as many as one call creates.
func TestSkipWholeTrees(t *testing.T) {
	t.Parallel()
	half := soak.Size(t, 750, 10_000)
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
			f := fixture.FlowsOn(fixture.NewCloned(t))
			dispatcherOnly(t, f.Engine)
			flow := f.NewFlowOf(t, tree(half, parent))
			below := tree(half, parent)
			for fixture.PartitionOf(below.ID) != fixture.PartitionOf(flow) {
				below.ID = id.NewFlowID()
			}
			f.NewFlowOf(t, below)
			f.Exec(t, "UPDATE ff_edge SET flow_id = $1 WHERE flow_id = $2", flow, below.ID)
			f.Exec(t, "UPDATE ff_edge_group SET flow_id = $1 WHERE flow_id = $2", flow, below.ID)
			root := f.NodeID(below.ID, "0")
			f.Exec(t, `UPDATE ff_exec_core SET flow_id = $1,
				eligibility_state = CASE WHEN execution_id = $3 THEN 'blocked_by_dependencies' ELSE eligibility_state END
				WHERE flow_id = $2`, flow, below.ID, root.UUID())
			f.Insert(t, "ff_edge", fixture.Columns{
				"partition_key": fixture.PartitionOf(flow), "flow_id": flow, "edge_id": id.NewEdgeID(), "upstream_eid": f.NodeID(flow, fmt.Sprint(half-1)).UUID(),
				"downstream_eid": root.UUID(), "policy": `{"edge_state": "applied", "applied_at_ms": 1}`,
			}, nil)
			f.Insert(t, "ff_edge_group", fixture.Columns{
				"partition_key": fixture.PartitionOf(flow), "flow_id": flow, "downstream_eid": root.UUID(), "policy": `{"kind": "all_of"}`,
				"running_count": 1, "k_target": 1,
			}, nil)
			began := time.Now()
			f.Fail(t, flow, "0")
			progress.Equal(t, "all to be skipped", 2*half-1, func() int { return countSkipped(t, f, flow) })
			t.Logf("after %v", time.Since(began))
			awaitDispatched(t, f)
			wantOneEventEach(t, f, flow)
		})
	}
}

// The state after one transaction: its last level has ended, its events are undispatched, and its edges are open.
func TestDispatchLeavesALevelUndispatched(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	const n = 2*levelsAtOnce + 10
	flow := f.NewFlowOf(t, chain(n))
	left := func(skipped int) {
		t.Helper()
		members, edges, groups := map[string]string{"0": fixture.StateFailed}, make(map[string]string), make(map[string]fixture.StoredGroup)
		events := []string{"0 failed"}
		for i := 1; i < n; i++ {
			key, edge := fmt.Sprint(i), fmt.Sprintf("%d>%d", i-1, i)
			switch {
			case i > skipped:
				members[key], edges[edge], groups[key] = fixture.StateHeld, "applied", fixture.StoredGroup{Running: 1, KTarget: 1}
			case i == 1:
				members[key], edges[edge], groups[key] = fixture.StateSkipped, "impossible failed", fixture.StoredGroup{Fail: 1, KTarget: 1}
				events = append(events, "1 skipped")
			default:
				members[key], edges[edge], groups[key] = fixture.StateSkipped, "impossible skipped", fixture.StoredGroup{Skip: 1, KTarget: 1}
				events = append(events, key+" skipped")
			}
		}
		if skipped < n-1 {
			events[skipped] += " left"
		}
		fixture.WantEqual(t, "members", f.Members(t, flow), members)
		fixture.WantEqual(t, "edges", f.Edges(t, flow), edges)
		fixture.WantEqual(t, "groups", f.Groups(t, flow), groups)
		f.WantCompletionEvents(t, flow, events...)
	}
	f.Fail(t, flow, "0")
	left(levelsAtOnce)
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 2) // one event for each transaction
	left(n - 1)
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 0)
}

// A process that ends executions and never dispatches loses nothing: another one finds it when it looks.
func TestDispatchOfAnotherProcessesEnds(t *testing.T) {
	r := fixture.NewRacers(t, 1)
	flow := r.NewFlowOf(t, chain(300))
	if err := r.Failed(t.Context(), r.Lease(t, flow, "0")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-upkeep.Of(r.Engine).Undispatched():
		t.Error("this engine left nothing")
	default:
	}
	fixture.ReconcileWith(t, r.Engine, 2)
	progress.Equal(t, "the last member to be skipped", 299, func() int { return countSkipped(t, r.Flows, flow) })
	awaitDispatched(t, r.Flows)
	r.WantMoves(t, flow, "terminal", links(1, 299)...)
	wantOneEventEach(t, r.Flows, flow)
}

// When a dispatcher dies between two levels, its open transaction is rolled back, and nothing else. The next one
// continues there, and every member is skipped once, those of a last level too.
func TestDispatcherKilledBetweenLevels(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{
		"first_level": levelsAtOnce + 1, "between": levelsAtOnce + 30, "last_level": 2 * levelsAtOnce, "second_transaction": 2*levelsAtOnce + 1,
	} {
		t.Run(name, func(t *testing.T) {
			r := fixture.NewRacers(t, 2)
			flow := r.NewFlowOf(t, chain(200))
			r.Fail(t, flow, "0")
			// It stops where it writes this member, until it is killed.
			r.Exec(t, fmt.Sprintf(`
				CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN NEW; END';
				CREATE TRIGGER stop BEFORE UPDATE ON ff_exec_core FOR EACH ROW
				WHEN (NEW.execution_id = '%s' AND NEW.public_state = 'skipped') EXECUTE FUNCTION stop()`, r.NodeID(flow, fmt.Sprint(at)).UUID()))
			wait := fixture.Async(t, func(ctx context.Context) error {
				_, err := upkeep.Of(r.Rivals.Engine).DispatchCompletions(ctx, 10)
				return err
			})
			fixture.Await(t, "the dispatcher to be stopped", func() bool {
				return len(fixture.Texts(t, r.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'", r.Rivals.Name)) == 1
			})
			// Until the end of the session, which notices its death before the server has released its locks: the
			// first later statement would find the flow locked.
			ended := fixture.Texts(t, r.Pool, `SELECT pg_terminate_backend(pid, $2)::text FROM pg_stat_activity
				WHERE application_name = $1 AND wait_event = 'PgSleep'`, r.Rivals.Name, time.Hour.Milliseconds())
			if !slices.Equal(ended, []string{"true"}) {
				t.Fatalf("the dispatcher's session ended: %v", ended)
			}
			if err := wait(); err == nil {
				t.Error("the dispatcher was not told of its death")
			}
			before := levelsAtOnce * ((at - 1) / levelsAtOnce)
			if n := countSkipped(t, r.Flows, flow); n != before {
				t.Errorf("%d are skipped, want the %d of whole transactions", n, before)
			}
			r.Exec(t, "DROP TRIGGER stop ON ff_exec_core")
			if _, err := upkeep.Of(r.Engine).DispatchCompletions(t.Context(), 10); err != nil {
				t.Error(err)
			}
			r.WantMoves(t, flow, "terminal", links(1, 199)...)
			wantOneEventEach(t, r.Flows, flow)
		})
	}
}

// Several dispatchers at once do the work of one.
func TestConcurrentDispatchersDoTheWorkOnce(t *testing.T) {
	r := fixture.NewRacers(t, 8)
	var flows []id.FlowID
	for range 4 {
		flow := r.NewFlowOf(t, chain(150))
		flows = append(flows, flow)
		r.Fail(t, flow, "0")
	}
	dispatch := func(ctx context.Context) error {
		_, err := upkeep.Of(r.Rivals.Engine).DispatchCompletions(ctx, 1)
		return err
	}
	for countUndispatched(t, r.Flows) > 0 {
		if err := together(t.Context(), dispatch, dispatch, dispatch, dispatch); err != nil {
			t.Fatal(err)
		}
	}
	for _, flow := range flows {
		if n := countSkipped(t, r.Flows, flow); n != 149 {
			t.Errorf("%d of %s are skipped", n, flow)
		}
		wantOneEventEach(t, r.Flows, flow)
	}
	r.WantNoAborts(t)
}

// An engine reports the events that its own transactions left undispatched, once they are committed.
func TestEngineReportsUndispatchedEnds(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	reported := func() bool {
		select {
		case <-upkeep.Of(f.Engine).Undispatched():
			return true
		default:
			return false
		}
	}
	deep := f.NewFlowOf(t, chain(80))
	flat := f.NewFlowOf(t, chain(levelsAtOnce))
	f.Fail(t, flat, "0")
	if reported() {
		t.Error("told although nothing is left")
	}
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).FailExecution(t.Context(), f.Lease(t, deep, "0"), fixture.ForGood); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reported() {
		t.Error("told of a transaction that was rolled back")
	}
	f.Fail(t, deep, "0")
	if !reported() {
		t.Error("not told")
	}
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
	if reported() {
		t.Error("told although the end is reached")
	}
}

// In the caller's transaction the whole skip is part of it.
func TestDispatchInATransaction(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := f.NewFlowOf(t, chain(200))
			f.Fail(t, flow, "0")
			tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
			fixture.Run(t, upkeep.Of(f.WithTx(tx)).DispatchCompletions, 3)
			if n := countSkipped(t, f, flow); n != levelsAtOnce {
				t.Errorf("%d skipped before the commit", n)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			tx = fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
			fixture.Run(t, upkeep.Of(f.WithTx(tx)).DispatchCompletions, 3)
			fixture.Commit(t, tx)
			wantOneEventEach(t, f, flow)
		})
	}
}

func TestDispatchRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	for _, batch := range []int{-1, 0, engine.MaxBatch + 1} {
		if _, err := upkeep.Of(f.Engine).DispatchCompletions(t.Context(), batch); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("a batch of %d: %v", batch, err)
		}
	}
}
