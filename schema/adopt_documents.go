package schema

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// defaultTokenGrace is how long the tokens of a replaced waitpoint key stay valid.
const defaultTokenGrace = 24 * time.Hour

// maxUnread limits the descriptions of each kind in the result.
const maxUnread = 100

// documents are statements for rewriting a table inside the database. Each selects only rows not yet in the library's
// form. $grace is the grace of waitpoint keys in milliseconds.
var documents = []struct {
	table      string
	statements []string
}{
	{"ff_waitpoint_pending", []string{
		`UPDATE ff_waitpoint_pending AS w
		SET state = 'active', activated_at_ms = s.suspended_at_ms
		FROM ff_suspension_current AS s
		WHERE
			s.partition_key = w.partition_key
			AND s.execution_id = w.execution_id
			AND w.state = 'pending'
			AND (
				jsonb_path_exists(s.condition, '$.**.waitpoint_key ? (@ == $key)', jsonb_build_object('key', w.waitpoint_key))
				OR jsonb_path_exists(s.condition, '$.**.waitpoints[*] ? (@ == $key)', jsonb_build_object('key', w.waitpoint_key))
			)
			AND ` + suspended,
		`UPDATE ff_waitpoint_pending AS w
		SET expires_at_ms = s.timeout_at_ms
		FROM ff_suspension_current AS s
		WHERE
			s.partition_key = w.partition_key
			AND s.execution_id = w.execution_id
			AND w.state = 'active'
			AND w.expires_at_ms IS DISTINCT FROM s.timeout_at_ms
			AND ` + suspended,
		`DELETE FROM ff_waitpoint_pending AS w
		WHERE
			w.state = 'active'
			AND NOT EXISTS (
				SELECT
				FROM ff_suspension_current AS s
				WHERE s.partition_key = w.partition_key AND s.execution_id = w.execution_id AND ` + suspended + `
			)`,
	}},
	{"ff_suspension_current", []string{
		`UPDATE ff_suspension_current AS s
		SET timeout_at_ms = NULL, timeout_behavior = NULL
		WHERE (s.timeout_at_ms IS NOT NULL OR s.timeout_behavior IS NOT NULL) AND NOT ` + suspended,
		`UPDATE ff_suspension_current AS s
		SET timeout_behavior = CASE s.timeout_behavior WHEN 'auto_resume' THEN 'auto_resume_with_timeout_signal' ELSE 'fail' END
		WHERE
			(s.timeout_behavior IN ('fail', 'cancel', 'expire', 'auto_resume_with_timeout_signal', 'escalate')) IS NOT TRUE
			AND ` + suspended,
		`UPDATE ff_suspension_current AS s
		SET ffx_open_since_ms = s.suspended_at_ms, ffx_step = (
			SELECT jsonb_build_object('name', 'signal ' || left(string_agg(DISTINCT k.key #>> '{}', ', '), 120), 'seq', 0)
			FROM (
				SELECT jsonb_path_query(s.condition, '$.**.waitpoint_key') AS key
				UNION ALL SELECT jsonb_path_query(s.condition, '$.**.waitpoints[*]')
			) AS k
			HAVING count(*) > 0
		)
		WHERE s.ffx_open_since_ms IS NULL AND ` + suspended,
		// FlowFabric's signals of timeouts have no id, and nothing reads such signals. The new id is the same in each try.
		`UPDATE ff_suspension_current AS s
		SET member_map = s.member_map || jsonb_build_object('__timeout__', (
			SELECT jsonb_agg(
				CASE
					WHEN jsonb_typeof(t.signal) <> 'object' OR t.signal ? 'signal_id' THEN t.signal
					ELSE t.signal || jsonb_build_object(
						'signal_id', md5(s.suspension_id::text || t.place)::uuid, 'signal_name', 'timeout', 'signal_category', 'system',
						'source_type', 'timer', 'source_identity', 'suspension_timeout', 'correlation_id', '',
						'accepted_at', coalesce(t.signal -> 'delivered_at_ms', t.signal -> 'accepted_at', to_jsonb(s.suspended_at_ms)),
						'payload_hex', NULL
					)
				END
				ORDER BY t.place
			)
			FROM jsonb_path_query(s.member_map, '$."__timeout__"[*]') WITH ORDINALITY AS t (signal, place)
		))
		WHERE
			jsonb_typeof(s.member_map) = 'object'
			AND (
				jsonb_typeof(s.member_map -> '__timeout__') = 'object'
				OR jsonb_path_exists(s.member_map, '$."__timeout__"[*] ? (@.type() == "object" && !exists(@.signal_id))')
			)`,
		// Placeholder left by an expired waitpoint in place of signals.
		`UPDATE ff_suspension_current AS s
		SET member_map = (
			SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}')
			FROM jsonb_each(s.member_map) AS m
			WHERE jsonb_typeof(m.value) <> 'object'
		)
		WHERE
			jsonb_typeof(s.member_map) = 'object'
			AND EXISTS (SELECT FROM jsonb_each(s.member_map) AS m WHERE jsonb_typeof(m.value) = 'object')`,
		`UPDATE ff_suspension_current AS s
		SET ffx_primary_waitpoint_id = w.waitpoint_id
		FROM ff_suspension_current AS o
		CROSS JOIN LATERAL (
			SELECT t.waitpoint_id
			FROM ff_waitpoint_pending AS t
			WHERE
				t.partition_key = o.partition_key
				AND t.execution_id = o.execution_id
				AND (t.state = 'active' OR t.waitpoint_key = o.condition #>> '{Single,waitpoint_key}')
			ORDER BY (t.waitpoint_key = o.condition #>> '{Single,waitpoint_key}') IS TRUE DESC, t.created_at_ms, t.waitpoint_id
			LIMIT 1
		) AS w
		WHERE
			s.partition_key = o.partition_key
			AND s.execution_id = o.execution_id
			AND s.ffx_primary_waitpoint_id IS NULL
			AND ` + suspended,
	}},
	{"ff_waitpoint_hmac", []string{
		// The signing key stays active: the newest valid one.
		`UPDATE ff_waitpoint_hmac AS k
		SET active = false
		WHERE
			k.active
			AND EXISTS (
				SELECT
				FROM ff_waitpoint_hmac AS n
				WHERE
					n.active
					AND n.kid <> k.kid
					AND ` + validKey("n") + `
					AND (
						NOT (` + validKey("k") + `)
						OR n.rotated_at_ms > k.rotated_at_ms
						OR n.rotated_at_ms = k.rotated_at_ms AND n.kid < k.kid
					)
			)`,
		`UPDATE ff_waitpoint_hmac AS k
		SET ffx_verify_until_ms = $grace + coalesce(
			(SELECT min(n.rotated_at_ms) FROM ff_waitpoint_hmac AS n WHERE n.rotated_at_ms > k.rotated_at_ms),
			k.rotated_at_ms
		)
		WHERE NOT k.active AND k.ffx_verify_until_ms IS NULL`,
	}},
	{"ff_suspend_dedup", []string{
		// The rows hold tokens, which nothing reads: a suspension is recognised by its own id.
		`DELETE FROM ff_suspend_dedup`,
	}},
	{"ff_stream_summary", []string{
		`UPDATE ff_stream_summary SET patch_kind = 'json-merge-patch' WHERE patch_kind IS DISTINCT FROM 'json-merge-patch'`,
	}},
	{"ff_budget_policy", []string{
		`UPDATE ff_budget_policy AS b
		SET policy_json = (b.policy_json - 'hard_limit' - 'dimension' - 'hard') || jsonb_build_object('hard_limits',
			CASE WHEN jsonb_typeof(b.policy_json -> 'hard') = 'object' THEN b.policy_json -> 'hard' ELSE '{}' END
			|| CASE
				WHEN b.policy_json ? 'hard_limit'
					THEN jsonb_build_object(coalesce(b.policy_json ->> 'dimension', 'default'), b.policy_json -> 'hard_limit')
				ELSE '{}'
			END
			|| coalesce(b.policy_json -> 'hard_limits', '{}'))
		WHERE ` + oldLimits + ` AND NOT ` + oddLimits,
	}},
	{"ff_budget_usage", []string{
		`UPDATE ff_budget_usage SET current_value = 0 WHERE current_value < 0`,
	}},
	{"ff_budget_usage_dedup", []string{
		// Their keys name neither a budget nor an operation.
		`DELETE FROM ff_budget_usage_dedup WHERE NOT outcome_json ? 'budget_id'`,
	}},
	{"ff_budget_usage_by_exec", []string{
		`UPDATE ff_budget_usage_by_exec SET delta_total = 0 WHERE delta_total < 0`,
		`DELETE FROM ff_budget_usage_by_exec AS x
		USING ff_budget_usage AS u
		WHERE
			u.partition_key = x.partition_key
			AND u.budget_id = x.budget_id
			AND u.dimensions_key = x.dimensions_key
			AND x.updated_at_ms <= u.last_reset_at_ms`,
	}},
	{"ff_quota_policy", []string{
		// FlowFabric inserts the row for a missing policy. Without a policy there are no limits either.
		`DELETE FROM ff_quota_policy
		WHERE requests_per_window_seconds = 0 AND max_requests_per_window = 0 AND active_concurrency_cap = 0`,
	}},
	{"ff_quota_window", startsInWindows},
	{"ff_quota_admitted", placesTaken},
}

const (
	// suspended is the condition for a suspension s whose execution is still suspended.
	suspended = `EXISTS (
			SELECT
			FROM ff_exec_core AS e
			WHERE
				e.partition_key = s.partition_key
				AND e.execution_id = s.execution_id
				AND e.lifecycle_phase = 'suspended'
		)`

	// oldLimits is the condition for a budget b with limits in a form that only FlowFabric's scheduler read.
	oldLimits = `jsonb_typeof(b.policy_json) = 'object' AND b.policy_json ?| ARRAY['hard_limit', 'hard']`

	// oddLimits is the condition for a budget b with a limit that is not a number.
	oddLimits = `(
			coalesce(jsonb_typeof(b.policy_json -> 'hard_limits'), 'object') <> 'object'
			OR coalesce(jsonb_typeof(b.policy_json -> 'hard_limit'), 'number') <> 'number'
			OR coalesce(jsonb_typeof(b.policy_json -> 'hard'), 'object') <> 'object'
			OR jsonb_path_exists(b.policy_json, '$.hard.* ? (@.type() <> "number")')
			OR jsonb_path_exists(b.policy_json, '$.hard_limits.* ? (@.type() <> "number")')
		)`
)

// wrongLimits is the condition for a rewritten budget b with an unreadable limit, which admits nothing.
const wrongLimits = `(
			` + oddLimits + `
			OR coalesce(jsonb_typeof(b.policy_json -> 'soft_limits'), 'object') <> 'object'
			OR EXISTS (
				SELECT
				FROM unnest(ARRAY['hard_limits', 'soft_limits']) AS k (key)
				CROSS JOIN LATERAL jsonb_each(
					CASE jsonb_typeof(b.policy_json -> k.key) WHEN 'object' THEN b.policy_json -> k.key ELSE '{}' END
				) AS l
				WHERE l.value::text !~ '^[0-9]+$'
			)
		)`

// validKey is the condition for a waitpoint key to sign and verify.
func validKey(alias string) string {
	return fmt.Sprintf(`octet_length(%[1]s.secret) = 32 AND %[1]s.kid COLLATE "C" ~ '^[!-9;-~]{1,64}$'`, alias)
}

// unread are queries for undecodable data, one description per row.
var unread = []string{
	// The view looks up each execution's current attempt, so leave out executions ended in the usual form.
	`SELECT 'execution ' || x.id || ': ' || x.corruption
	FROM ff_exec_core AS e
	CROSS JOIN LATERAL (
		SELECT v.id, v.corruption
		FROM ffx_execution AS v
		WHERE v.partition_key = e.partition_key AND v.execution_id = e.execution_id
		OFFSET 0
	) AS x
	WHERE
		(
			e.lifecycle_phase = 'terminal'
			AND e.ownership_state = 'unowned'
			AND e.eligibility_state = 'not_applicable'
			AND e.attempt_state = 'attempt_terminal'
			AND e.public_state IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
			AND e.blocking_reason IS NULL
		) IS NOT TRUE
		AND x.corruption IS NOT NULL`,
	`SELECT 'execution {fp:' || e.partition_key || '}:' || e.execution_id || ': ' || (e.raw_fields ->> 'blocking_detail')
	FROM ff_exec_core AS e
	WHERE
		e.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota')
		AND e.raw_fields ->> 'blocking_detail' LIKE 'not an id: %'`,
	`SELECT 'budget ' || b.budget_id || ': a limit is not a whole number from 0 on' FROM ff_budget_policy AS b WHERE ` + wrongLimits,
	`SELECT count(*) || ' admissions were dropped: their quota policy or their execution is not an id'
	FROM old_ff_quota_admitted AS a
	` + readAdmission + `
	WHERE (` + readable + `) IS NOT TRUE
	HAVING count(*) > 0`,
	`SELECT 'suspension of {fp:' || s.partition_key || '}:' || s.execution_id || ': member_map is a JSON ' || jsonb_typeof(s.member_map)
	FROM ff_suspension_current AS s
	WHERE jsonb_typeof(s.member_map) <> 'object'`,
	`SELECT 'suspension of {fp:' || s.partition_key || '}:' || s.execution_id || ': satisfied_set is a JSON ' || jsonb_typeof(s.satisfied_set)
	FROM ff_suspension_current AS s
	WHERE jsonb_typeof(s.satisfied_set) <> 'array'`,
	`SELECT 'suspension of {fp:' || s.partition_key || '}:' || s.execution_id || ': its condition has an unknown form'
	FROM ff_suspension_current AS s
	WHERE NOT (
		s.condition IN ('"OperatorOnly"', '"TimeoutOnly"')
		OR coalesce(s.condition #>> '{Single,waitpoint_key}', s.condition #>> '{Composite,kind}', '') <> ''
	)`,
	`SELECT 'waitpoint key ' || quote_literal(k.kid) || ': its id or its secret is not valid, so it neither signs nor verifies'
	FROM ff_waitpoint_hmac AS k
	WHERE NOT (` + validKey("k") + `)`,
	`SELECT count(*) || ' budget reports of the last day are no longer known: if one is repeated, it counts again'
	FROM old_ff_budget_usage_dedup
	WHERE expires_at_ms > ffx_now_ms(NULL)
	HAVING count(*) > 0`,
}

// rewriteTables converts FlowFabric's own forms to the library's.
func (c *conversion) rewriteTables(ctx context.Context) error {
	// The rewrites are joins. With the planner's statistics for empty tables, each would read whole tables for each row.
	if err := c.exec(ctx, "ANALYZE "+strings.Join(c.qualified(referenceTables), ", ")); err != nil {
		return classify("analyse the new tables", err)
	}
	if !c.state.steps[stepRewrite+"ff_exec_core"] {
		c.log.DebugContext(ctx, "rewriting", "table", "ff_exec_core", "schema", c.schema)
		if err := c.rewriteExecutions(ctx); err != nil {
			return err
		}
		if err := c.once(ctx, stepRewrite+"ff_exec_core"); err != nil {
			return classify("record the rewriting of ff_exec_core", err)
		}
		c.log.InfoContext(ctx, "rewritten", "table", "ff_exec_core", "rows", c.count("ff_exec_core").Rewritten, "schema", c.schema)
	}
	if err := c.rewriteStreams(ctx); err != nil {
		return err
	}
	for _, of := range documents {
		if c.state.steps[stepRewrite+of.table] {
			continue
		}
		c.log.DebugContext(ctx, "rewriting", "table", of.table, "schema", c.schema)
		var rewritten int64
		err := c.retryLocked(ctx, func() error {
			if err := c.lockStands(ctx); err != nil {
				return err
			}
			rewritten = 0
			return c.inTx(ctx, func(tx pgx.Tx) error {
				for _, statement := range of.statements {
					tag, err := tx.Exec(ctx, strings.ReplaceAll(statement, "$grace", strconv.FormatInt(c.tokenGrace.Milliseconds(), 10)))
					if err != nil {
						return err
					}
					rewritten += tag.RowsAffected()
				}
				_, err := tx.Exec(ctx, record(stepRewrite+of.table))
				return err
			})
		})
		if err != nil {
			return classify("rewrite "+of.table, err)
		}
		c.count(of.table).Rewritten += rewritten
		c.log.InfoContext(ctx, "rewritten", "table", of.table, "rows", rewritten, "schema", c.schema)
	}
	return c.listUnread(ctx)
}

// listUnread collects descriptions of undecodable data.
func (c *conversion) listUnread(ctx context.Context) error {
	for _, query := range unread {
		err := c.inTx(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, query+fmt.Sprintf(" LIMIT %d", maxUnread+1))
			if err != nil {
				return err
			}
			texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if len(texts) > maxUnread {
				texts[maxUnread] = "… and more"
			}
			c.unread = append(c.unread, texts...)
			return err
		})
		if err != nil {
			return classify("list what cannot be decoded", err)
		}
	}
	for _, text := range c.unread {
		c.log.WarnContext(ctx, "could not be decoded", "what", text, "schema", c.schema)
	}
	return nil
}
