-- The executions x waiting at a budget or limit, in order. Each is locked, or skipped if held by another transaction.
FROM (
    SELECT
        w.partition_key,
        w.execution_id
    FROM ffx_waiting AS w
    WHERE w.gate_id = ${gate_id}
    ORDER BY
        w.rank,
        w.created_at_ms,
        w.execution_id
) AS q
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.lane_id,
        t.priority,
        t.created_at_ms,
        t.ffx_budget_ids,
        t.ffx_limit_ids,
        t.ffx_limit_units
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = q.partition_key
        AND t.execution_id = q.execution_id
        AND t.ffx_gate_id = ${gate_id}
        AND t.lifecycle_phase = 'runnable'
        AND t.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota')
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
) AS x
