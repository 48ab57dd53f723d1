//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// Flows of the shapes that people really build come to their ends while worker processes are killed. `make soak` runs
// each of them whole, one after the other; other tests all at once, and small.
func TestFlowShapesSurviveKilledWorkers(t *testing.T) {
	t.Parallel()
	if !soak.On(t) {
		runShapes(t, 15*time.Millisecond, shapes(false)...)
		return
	}
	for _, s := range shapes(true) {
		t.Run(s.name, func(t *testing.T) { runShapes(t, 15*time.Millisecond, s) })
	}
}

func runShapes(t *testing.T, within time.Duration, shapes ...shape) {
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), shapeTables); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	nodes, kills := 0, 0
	for _, s := range shapes {
		for i, spec := range s.flows {
			if _, err := eng.CreateFlow(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			nodes += len(s.ends[i])
		}
		kills += s.kills
	}
	created := time.Since(begun)

	f := &fleet{t: t, pool: pool, url: url, dangers: dangers{
		killOneIn: max(nodes/(3*kills), 2), maxKills: kills, freezeOneIn: max(nodes/6, 2), maxFreezes: 2, within: within,
	}}
	begun = time.Now()
	for range processes / 2 {
		f.start()
	}
	f.awaitNone("executions that have not ended",
		`SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase NOT IN ('terminal', 'cancelled')`)
	ended := time.Since(begun)
	f.awaitNone("completions that are not dispatched",
		`SELECT count(*) FROM ff_completion_event WHERE dispatched_at_ms IS NULL`)
	f.stop()
	t.Logf("%d nodes: created in %.2f s, ended in %.1f s; %d handlers started, %d processes killed, %d frozen, %d outcomes refused",
		nodes, created.Seconds(), ended.Seconds(), f.started, f.kills, f.freezes, f.refused)
	if f.kills < kills/2 {
		t.Error("that was too little chaos to prove anything")
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	checkShapes(t, pool)
	checkFences(t, pool)
	for {
		n, err := upkeep.Of(eng).SummariseFlows(t.Context(), 1_000)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	for _, s := range shapes {
		for i, spec := range s.flows {
			checkFlow(t, pool, eng, s, spec.ID, s.ends[i])
		}
	}
}

// checkFlow: every node has ended as it should, in order, and the flow says so everywhere.
func checkFlow(t *testing.T, pool *pgxpool.Pool, eng *engine.Engine, s shape, flow id.FlowID, ends map[string]state.PublicState) {
	t.Helper()
	graph, err := eng.FlowGraph(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	if len(graph.Nodes) != len(ends) {
		t.Errorf("%s: %d nodes, want %d", s.name, len(graph.Nodes), len(ends))
	}
	wrong := 0
	for _, n := range graph.Nodes {
		if n.State != ends[n.Key] {
			if wrong++; wrong < 5 {
				t.Errorf("%s: node %q is %s, want %s", s.name, n.Key, n.State, ends[n.Key])
			}
		}
	}
	described, err := eng.DescribeFlow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	if !described.Ended {
		t.Errorf("%s: the flow has not ended", s.name)
	}
	summary := "completed"
	for _, end := range ends {
		if end == state.PublicFailed {
			summary = "failed"
		}
	}
	wantNone(t, pool, s.name+": the summary of the flow is another one", `
		SELECT $1::uuid AS flow, s.* FROM (SELECT) AS one LEFT JOIN ff_flow_summary AS s ON s.flow_id = $1
		WHERE (s.public_flow_state, s.total_members) IS DISTINCT FROM ($2::text, $3::bigint)`, flow, summary, len(ends))
	for key, want := range s.sums {
		kind := engine.Kind[struct{}, result]{Name: "fold"}
		got, err := kind.Result(t.Context(), eng, eng.NodeID(flow, key))
		if err != nil || got.Sum != want {
			t.Errorf("%s: node %q has counted %d, %v, want %d", s.name, key, got.Sum, err, want)
		}
	}
	if s.name == "sagas" {
		checkSaga(t, pool, flow, ends)
	}
}

// checkSaga: steps were done in order and undone in reverse; no others were.
func checkSaga(t *testing.T, pool *pgxpool.Pool, flow id.FlowID, ends map[string]state.PublicState) {
	t.Helper()
	var want []string
	for i := 0; ends[sagaStep(i)] == state.PublicCompleted; i++ {
		want = append(want, sagaStep(i))
	}
	if ends["failed"] == state.PublicCompleted {
		for i := len(want) - 1; i >= 0; i-- {
			want = append(want, sagaUndo(i))
		}
	}
	rows, _ := pool.Query(t.Context(), `
		SELECT e.raw_fields ->> 'ffx_node_key' FROM shape_effect AS s JOIN ff_exec_core AS e ON e.execution_id = s.execution
		WHERE e.flow_id = $1 ORDER BY s.id`, flow)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("a saga has done %s, want %s", strings.Join(got, ", "), fmt.Sprint(want))
	}
}

// checkShapes: handlers began under leases that were given, each completion has exactly the effects that it promised, the
// groups have counted every edge, and nothing started too early.
func checkShapes(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const exact = `e.raw_fields ->> 'execution_kind' IN ('exact', 'map', 'fold', 'twice', 'grow')`
	wantNone(t, pool, "an execution has other effects than its end promises", `
		SELECT e.execution_id, e.public_state, e.raw_fields ->> 'execution_kind' AS kind, s.effects
		FROM ff_exec_core AS e LEFT JOIN (
			SELECT execution, count(*) AS effects, max(epoch) AS epoch FROM shape_effect GROUP BY execution
		) AS s ON s.execution = e.execution_id
		WHERE coalesce(s.effects, 0) <> CASE WHEN e.public_state = 'completed' AND `+exact+` THEN 1 ELSE 0 END
			OR s.epoch <> e.ffx_lease_epoch`)
	wantNone(t, pool, "an execution was tried otherwise than its end says", `
		SELECT e.execution_id, e.public_state, e.raw_fields ->> 'execution_kind' AS kind, s.tries, s.epochs
		FROM ff_exec_core AS e LEFT JOIN (
			SELECT execution, count(*) AS tries, count(DISTINCT epoch) AS epochs, max(epoch) AS epoch FROM shape_try GROUP BY execution
		) AS s ON s.execution = e.execution_id
		WHERE (`+exact+` OR e.raw_fields ->> 'execution_kind' = 'fails') AND (e.public_state <> 'skipped') <> (s.tries IS NOT NULL)
			OR e.public_state = 'skipped' AND s.tries > 0
			OR s.tries <> s.epochs OR e.public_state = 'completed' AND s.epoch <> e.ffx_lease_epoch`)
	wantNone(t, pool, "an execution has other completion events than its end", `
		SELECT e.execution_id, e.public_state, array_agg(c.outcome)
		FROM ff_exec_core AS e LEFT JOIN ff_completion_event AS c USING (partition_key, execution_id)
		GROUP BY e.partition_key, e.execution_id
		HAVING array_agg(c.outcome) IS DISTINCT FROM ARRAY[CASE e.public_state WHEN 'completed' THEN 'success' ELSE e.public_state END]`)
	wantNone(t, pool, "a group has counted other ends than there were", `
		SELECT g.flow_id, g.downstream_eid, g.policy, g.success_count, g.fail_count, g.skip_count, g.running_count, c.*
		FROM ff_edge_group AS g JOIN (
			SELECT d.flow_id, d.downstream_eid, count(*) FILTER (WHERE u.public_state = 'completed') AS succeeded,
				count(*) FILTER (WHERE u.public_state = 'failed') AS failed,
				count(*) FILTER (WHERE u.public_state = 'skipped') AS skipped
			FROM ff_edge AS d JOIN ff_exec_core AS u ON u.partition_key = d.partition_key AND u.execution_id = d.upstream_eid
			GROUP BY d.flow_id, d.downstream_eid
		) AS c USING (flow_id, downstream_eid)
		WHERE (g.success_count, g.fail_count, g.skip_count, g.running_count % 1000000000) <> (c.succeeded, c.failed, c.skipped, 0)`)
	// The remark of checkOrder on the two instants applies here, too.
	wantNone(t, pool, "an execution started before enough of its upstreams had ended", `
		SELECT g.downstream_eid, g.policy, d.started_at_ms, count(*) AS upstreams,
			count(*) FILTER (WHERE u.terminal_at_ms <= d.started_at_ms + 100) AS ended
		FROM ff_edge_group AS g
		JOIN ff_exec_core AS d ON d.partition_key = g.partition_key AND d.execution_id = g.downstream_eid
		JOIN ff_edge AS e ON e.partition_key = g.partition_key AND e.flow_id = g.flow_id AND e.downstream_eid = g.downstream_eid
			AND NOT e.policy ? 'allow_active_downstream'
		JOIN ff_exec_core AS u ON u.partition_key = e.partition_key AND u.execution_id = e.upstream_eid
		WHERE d.started_at_ms IS NOT NULL
		GROUP BY g.partition_key, g.flow_id, g.downstream_eid, g.policy, g.k_target, d.started_at_ms
		HAVING count(*) FILTER (WHERE u.terminal_at_ms <= d.started_at_ms + 100
				AND (u.public_state = 'completed' OR g.policy ? 'ffx_when'))
			< CASE WHEN g.policy ? 'ffx_when' OR g.policy ->> 'kind' = 'all_of' THEN count(*) ELSE g.k_target END`)
	wantNone(t, pool, "an execution ended before the children that it waited for", `
		SELECT e.upstream_eid, u.terminal_at_ms, e.downstream_eid, d.terminal_at_ms
		FROM ff_edge AS e
		JOIN ff_exec_core AS u ON u.partition_key = e.partition_key AND u.execution_id = e.upstream_eid
		JOIN ff_exec_core AS d ON d.partition_key = e.partition_key AND d.execution_id = e.downstream_eid
		WHERE d.public_state = 'completed' AND e.policy ->> 'allow_active_downstream' = 'true' AND d.terminal_at_ms < u.terminal_at_ms`)
}
