package schema_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/schema"
)

// referenceDocuments are rows about suspensions, waitpoints, streams, budgets and quotas in the forms of FlowFabric that
// this library does not know. Executions 1 and 2 are suspended, 3 is not.
const referenceDocuments = `
	INSERT INTO ff_exec_core (
		partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state, created_at_ms
	)
	SELECT 0, ('00000000-0000-0000-0000-00000000000' || n)::uuid, 'documents', CASE WHEN n = 3 THEN 'active' ELSE 'suspended' END,
		'released', 'not_applicable', 'suspended', 'attempt_interrupted', 1
	FROM generate_series(1, 3) AS n;
	INSERT INTO ff_suspension_current (
		partition_key, execution_id, suspension_id, suspended_at_ms, timeout_at_ms, condition, member_map, timeout_behavior
	)
	VALUES
	(0, '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 100, 900, '{"Single":{"waitpoint_key":"b","matcher":"Wildcard"}}',
		'{"b":[{"signal_id":"s"}],"gone":{"status":"never_committed"}}', 'auto_resume'),
	(0, '00000000-0000-0000-0000-000000000002', gen_random_uuid(), 100, NULL,
		'{"Composite":{"kind":"Count","n":1,"count_kind":"DistinctSources","waitpoints":["c"]}}', '{}', NULL),
	(0, '00000000-0000-0000-0000-000000000003', gen_random_uuid(), 100, 900, '"OperatorOnly"', '{}', 'fail');
	INSERT INTO ff_waitpoint_pending (
		partition_key, waitpoint_id, execution_id, token_kid, token, created_at_ms, expires_at_ms, waitpoint_key, state
	)
	VALUES
	(0, '00000000-0000-0000-0000-0000000000aa', '00000000-0000-0000-0000-000000000001', 'k', 'k:1', 1, 5, 'a', 'active'),
	(0, '00000000-0000-0000-0000-0000000000bb', '00000000-0000-0000-0000-000000000001', 'k', 'k:2', 2, 5, 'b', 'pending'),
	(0, '00000000-0000-0000-0000-0000000000cc', '00000000-0000-0000-0000-000000000002', 'k', 'k:3', 3, 5, 'c', 'pending'),
	(0, '00000000-0000-0000-0000-0000000000dd', '00000000-0000-0000-0000-000000000003', 'k', 'k:4', 4, 5, 'd', 'active'),
	(0, '00000000-0000-0000-0000-0000000000ee', '00000000-0000-0000-0000-000000000003', 'k', 'k:5', 5, 5, 'e', 'pending');
	INSERT INTO ff_stream_summary VALUES (2, '00000000-0000-0000-0000-000000000001', 0, '{}', 1, 'other', 5, 5);
	INSERT INTO ff_stream_meta VALUES (2, '00000000-0000-0000-0000-000000000001', 0, 1, 5, 64);
	INSERT INTO ff_attempt (partition_key, execution_id, attempt_index, lease_epoch)
	SELECT 2, '00000000-0000-0000-0000-000000000001', n, 1 FROM generate_series(0, 2) AS n;
	INSERT INTO ff_stream_frame (partition_key, execution_id, attempt_index, ts_ms, seq, fields, mode, created_at_ms)
	SELECT 2, '00000000-0000-0000-0000-000000000001', attempt, ts_ms, seq, '{}', mode, ts_ms
	FROM (VALUES
		(0, 5, 1, 'best_effort'), (0, 5, 0, 'durable'), (0, 4, 7, 'summary'), (0, 6, 0, 'durable'), (0, 7, 3, 'best_effort'),
		(1, 3, 0, 'summary')
	) AS f (attempt, ts_ms, seq, mode);
	INSERT INTO ff_budget_policy (partition_key, budget_id, policy_json, created_at_ms, updated_at_ms)
	VALUES
	(0, 'one', '{"hard_limit":7,"dimension":"tokens","on_hard_limit":"fail"}', 1, 1),
	(0, 'default', '{"hard_limit":7}', 1, 1),
	(0, 'many', '{"hard":{"a":1,"b":2},"hard_limits":{"b":3}}', 1, 1),
	(0, 'odd', '{"hard_limit":"x"}', 1, 1),
	(0, 'half', '{"hard_limit":0.5}', 1, 1),
	(0, 'ours', '{"hard_limits":{"a":1},"soft_limits":{}}', 1, 1);
	INSERT INTO ff_budget_usage VALUES (0, 'one', 'tokens', -5, 100, 1), (0, 'one', 'cost', 5, NULL, 1);
	INSERT INTO ff_budget_usage_dedup VALUES (0, 'bare', '{"kind":"Ok"}', 1, 32503680000000), (0, 'old', '{}', 1, 2);
	INSERT INTO ff_budget_usage_by_exec
	VALUES
	(0, 'one', '00000000-0000-0000-0000-000000000001', 'tokens', 5, 100),
	(0, 'one', '00000000-0000-0000-0000-000000000002', 'tokens', -5, 101),
	(0, 'one', '00000000-0000-0000-0000-000000000002', 'cost', 5, 1);
	INSERT INTO ff_quota_policy VALUES (0, 'none', 0, 0, 0, 3, 1, 1), (0, 'some', 60, 5, 0, 3, 1, 1);
	INSERT INTO ff_quota_admitted VALUES (0, 'some', '{fp:0}:x', 1, 2);
	INSERT INTO ff_quota_window VALUES (0, 'some', '', 1, '{fp:0}:x');
	INSERT INTO ff_suspend_dedup VALUES (0, 'key', '{"variant":"Suspended"}', 1)`

func insertReferenceDocuments(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	exec(t, conn, strings.ReplaceAll(referenceDocuments, "gen_random_uuid()", "'00000000-0000-0000-0000-0000000000ff'"))
}

// FlowFabric's own forms of suspensions, waitpoint keys, streams, budgets and quotas are rewritten, and nothing else
// is.
func TestAdoptRewritesDocuments(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, partitioned)
	conn := connect(t, databaseURL)
	insertReferenceDocuments(t, conn)
	exec(t, conn, `
		INSERT INTO ff_waitpoint_hmac (kid, secret, rotated_at_ms, active)
		SELECT k.kid, decode(repeat('5a', 32), 'hex'), k.rotated_at_ms, k.active
		FROM (VALUES ('k1', 100, true), ('k2', 300, true), ('k4', 300, true), ('k3', 200, false), ('a:b', 50, false), ('a b', 900, true))
			AS k (kid, rotated_at_ms, active)`)
	result, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{WaitpointTokenGrace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string][]string{
		"SELECT concat_ws(' ', right(execution_id::text, 1), timeout_at_ms, timeout_behavior, member_map, right(ffx_primary_waitpoint_id::text, 2)) FROM ff_suspension_current": {
			`1 900 auto_resume_with_timeout_signal {"b": [{"signal_id": "s"}]} bb`, "2 fail {} cc", "3 {}",
		},
		"SELECT concat_ws(' ', right(waitpoint_id::text, 2), state, activated_at_ms, expires_at_ms) FROM ff_waitpoint_pending": {
			"aa active 900", "bb active 100 900", "cc active 100", "ee pending 5",
		},
		"SELECT concat_ws(' ', kid, active, ffx_verify_until_ms) FROM ff_waitpoint_hmac": {
			"a b f 1900", "a:b f 1100", "k1 f 1200", "k2 t", "k3 f 1300", "k4 f 1900",
		},
		"SELECT concat_ws(' ', patch_kind, ffx_kept) FROM ff_stream_summary": {"json-merge-patch 1"},
		"SELECT ffx_kept::text FROM ff_stream_meta":                          {"2"},
		`SELECT concat_ws(' ', attempt_index, ffx_stream_ts_ms, ffx_stream_seq, ffx_stream_frames, ffx_stream_durable)
		FROM ff_attempt WHERE partition_key = 2`: {"0 7 3 5 2", "1 3 0 1 0", "2"},
		"SELECT concat_ws(' ', attempt_index, ts_ms, seq, ffx_number, ffx_durable) FROM ff_stream_frame": {
			"0 4 7 1 0", "0 5 0 2 1", "0 5 1 3 1", "0 6 0 4 2", "0 7 3 5 2", "1 3 0 1 0",
		},
		"SELECT budget_id || ' ' || policy_json FROM ff_budget_policy": {
			`default {"hard_limits": {"default": 7}}`, `half {"hard_limits": {"default": 0.5}}`, `many {"hard_limits": {"a": 1, "b": 3}}`, `odd {"hard_limit": "x"}`,
			`one {"hard_limits": {"tokens": 7}, "on_hard_limit": "fail"}`, `ours {"hard_limits": {"a": 1}, "soft_limits": {}}`,
		},
		"SELECT dimensions_key || ' ' || current_value FROM ff_budget_usage":       {"cost 5", "tokens 0"},
		"SELECT dedup_key FROM ff_budget_usage_dedup":                              nil,
		"SELECT dimensions_key || ' ' || delta_total FROM ff_budget_usage_by_exec": {"cost 5", "tokens 0"},
		"SELECT quota_policy_id || ' ' || active_concurrency FROM ff_quota_policy": {"some 0"},
		"SELECT quota_policy_id FROM ff_quota_admitted":                            nil,
		"SELECT quota_policy_id FROM ff_quota_window":                              nil,
		"SELECT outcome_json::text FROM ff_suspend_dedup":                          nil,
	} {
		got := lines(t, conn, sql)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n\t%q, want\n\t%q", sql, got, want)
		}
	}
	for _, want := range []string{"budget odd", "budget half", "'a:b'", "1 budget reports", "1 admissions were dropped"} {
		if !slices.ContainsFunc(result.Unread, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("%q is not told of %s", result.Unread, want)
		}
	}
}
