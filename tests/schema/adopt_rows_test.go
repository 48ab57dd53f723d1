package schema_test

import (
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schema"
)

// insertReferenceRows inserts rows with every literal that FlowFabric stores.
func insertReferenceRows(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	sql, err := os.ReadFile("testdata/reference_rows.sql")
	if err != nil {
		t.Fatal(err)
	}
	flow := id.FlowID(md5.Sum([]byte("flow")))
	exec(t, conn, strings.ReplaceAll(string(sql), "@FLOW_KEY", fmt.Sprint(id.Partitions{}.FlowPartition(flow))))
}

// lines returns the rows of a query that has one text column.
func lines(t *testing.T, conn *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return found
}

// storedExecutions are the executions with their attempts, grants, queue entries and events, without the times and the ids
// that differ from run to run.
const storedExecutions = `
	SELECT 'execution ' || jsonb_strip_nulls((to_jsonb(e) || CASE WHEN e.terminal_at_ms > 9 THEN '{"terminal_at_ms":"later"}'::jsonb ELSE '{}' END)
		- '{ffx_last_mutation_at_ms,policy}'::text[])::text FROM ff_exec_core AS e
	UNION ALL
	SELECT 'attempt ' || jsonb_strip_nulls((to_jsonb(a) || CASE WHEN a.terminal_at_ms > 9 THEN '{"terminal_at_ms":"later"}'::jsonb ELSE '{}' END)
		- '{ffx_stream_ts_ms,ffx_stream_seq,ffx_stream_frames,ffx_stream_durable,policy,raw_fields}'::text[])::text
	FROM ff_attempt AS a
	UNION ALL
	SELECT 'grant ' || to_jsonb(g)::text FROM ff_claim_grant AS g
	UNION ALL
	SELECT 'queued ' || to_jsonb(r)::text FROM ffx_ready AS r
	UNION ALL
	SELECT 'blocked ' || (to_jsonb(b) - 'blocked_at_ms')::text FROM ffx_blocked AS b
	UNION ALL
	SELECT 'completion ' || concat_ws(' ', c.execution_id, c.outcome, c.dispatched_at_ms IS NOT NULL)
	FROM ff_completion_event AS c
	UNION ALL
	SELECT 'lease event ' || concat_ws(' ', l.execution_id, l.event_type, l.ffx_revoked_by)
	FROM ff_lease_event AS l
	UNION ALL
	SELECT 'group ' || to_jsonb(g)::text FROM ff_edge_group AS g
	UNION ALL
	SELECT 'edge ' || d.edge_id || ' ' || (d.policy ->> 'edge_state') FROM ff_edge AS d
	ORDER BY 1`

// settle lets the background work do all that it finds in a database.
func settle(t *testing.T, databaseURL string) {
	t.Helper()
	eng, err := engine.New(lazyPool(t, databaseURL), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := upkeep.Of(eng)
	for range 4 {
		for walked := 1; walked > 0; {
			var err error
			if walked, err = m.RepairQueue(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.RepairGroups(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
		if _, err := m.DispatchCompletions(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
}

// Every literal that FlowFabric stores is converted as recorded: what the views show at once, and the rows after the background
// work.
func TestAdoptReadsAndWritesEveryLiteral(t *testing.T) {
	t.Parallel()
	convertedURL := referenceDatabase(t, partitioned)
	converted := connect(t, convertedURL)
	insertReferenceRows(t, converted)
	exec(t, converted, "UPDATE ff_exec_core SET attempt_state = 'odd' WHERE payload = 'ended public completed'")
	const read = `
		SELECT concat_ws(' ', x.id, x.state, CASE WHEN x.state <> 'failed' THEN x.outcome END, x.namespace, x.kind, x.tags, x.cancelled_by)
		FROM ffx_execution AS x
		JOIN ff_exec_core AS e ON e.partition_key = x.partition_key AND e.execution_id = x.execution_id
		WHERE x.state NOT IN ('waiting', 'delayed', 'waiting_children', 'rate_limited', 'resumable')
		ORDER BY 1`
	result := adopt(t, convertedURL)
	requireRecorded(t, "testdata/converted_views.txt", lines(t, converted, read))
	if left := lines(t, converted, `
		SELECT concat_ws(' ', lifecycle_phase, ownership_state, eligibility_state, attempt_state)
		FROM ff_exec_core
		WHERE
			ffx_retry_count IS NULL
			OR lifecycle_phase IN ('submitted', 'pending', 'eligible', 'blocked')
			AND ownership_state IN ('unowned', 'released')
			AND eligibility_state <> 'pending_claim'`); len(left) != 0 {
		t.Errorf("not in the form of this library: %q", left)
	}
	for _, want := range []string{"tea", "attempt_state"} {
		if !slices.ContainsFunc(result.Unread, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("unread: %q, want %s", result.Unread, want)
		}
	}
	// Columns that no rewriting concerns are equal, byte by byte.
	for table, columns := range map[string]string{
		"ff_exec_core": "partition_key, execution_id, flow_id, lane_id, cancellation_reason, cancelled_by, created_at_ms, terminal_at_ms, " +
			"payload, result, policy, started_at_ms, lease_reclaim_count",
		"ff_attempt":               "partition_key, execution_id, attempt_index, worker_id, started_at_ms, usage, policy, raw_fields",
		"ff_flow_core":             "*",
		"ff_flow_summary":          "*",
		"ff_edge":                  "*",
		"ff_pending_cancel_groups": "*", "ff_cancel_dispatch_outbox": "*", "ff_cancel_backlog": "*", "ff_cancel_backlog_member": "*",
		"ff_lane_registry": "*", "ff_operator_event": "*",
		"ff_stream_frame": "partition_key, execution_id, attempt_index, ts_ms, seq, fields, mode, created_at_ms",
		"ff_stream_meta":  "partition_key, execution_id, attempt_index, ema_rate_hz, last_append_ts_ms, maxlen_applied_last",
		"ff_worker_registry": "partition_key, namespace, worker_instance_id, worker_id, lanes, capabilities_csv, last_heartbeat_ms, " +
			"liveness_ttl_ms, registered_at_ms",
		"ff_worker_registry_event": "*", "ff_partition_config": "*", "ff_migration_annotation": "*", "ff_claim_grant": "*",
	} {
		sql := fmt.Sprintf("SELECT t::text FROM (SELECT %s FROM %%s) AS t", columns)
		was := lines(t, converted, fmt.Sprintf(sql, "old_"+table))
		if len(was) == 0 {
			t.Errorf("%s has no rows", table)
		}
		requireSameLines(t, lines(t, converted, fmt.Sprintf(sql, table)), was)
	}
	settle(t, convertedURL)
	requireRecorded(t, "testdata/converted_rows.txt", lines(t, converted, storedExecutions))
}

// requireRecorded compares lines with those of a file. To record them anew, delete the file and run the test.
func requireRecorded(t *testing.T, name string, got []string) {
	t.Helper()
	recorded, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(name, []byte(strings.Join(got, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("recorded %s: read it", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	requireSameLines(t, got, strings.Split(string(recorded), "\n"))
}

// An event that is written afterwards follows the copied ones, and readers' cursors stay valid.
func TestAdoptContinuesTheEventIDs(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, partitioned)
	conn := connect(t, databaseURL)
	for _, o := range outboxes {
		exec(t, conn, o.insert, 3)
		exec(t, conn, "DELETE FROM "+o.table+" WHERE event_id = 3")
	}
	adopt(t, databaseURL)
	for _, o := range outboxes {
		exec(t, conn, o.insert, 1)
		if got := scalar[[]int64](t, conn, "SELECT array_agg(event_id ORDER BY event_id) FROM "+o.table); !slices.Equal(got, []int64{1, 2, 4}) {
			t.Errorf("%s: %d, want 1, 2 and then 4", o.table, got)
		}
	}
	if err := schema.Check(t.Context(), conn, schema.Options{}); err != nil {
		t.Error(err)
	}
}
