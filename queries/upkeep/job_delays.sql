-- name: PromoteDelayed :many
-- PromoteDelayed makes delayed executions claimable whose time has come. Returns one row per execution with the lane,
-- and whether the execution was promoted: if the execution is not delayed any more, the statement only clears the
-- delay. An execution whose deadline has passed too is left to the deadline job. An execution with a budget or quota
-- goes to the gate.
--
-- Retries of fair work need new places in the same transaction, so fair_retries is needed to promote such retries.
-- Otherwise these retries are returned unchanged, with fair, the share.
--
-- Used by: upkeep.PromoteDelayed.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, then the guarded UPDATE). Spans partitions.
WITH due AS (
    SELECT
        c.ctid::tid AS row_id,
        c.partition_key,
        c.execution_id,
        (c.lifecycle_phase = 'runnable' AND c.eligibility_state = 'not_eligible_until_time') AS delayed,
        c.lane_id,
        c.priority,
        CASE
            WHEN num_nulls(c.ffx_created_at_ms) = 0 AND c.attempt_state = 'pending_retry_attempt' THEN c.raw_fields
        END AS fair_fields
    FROM ff_exec_core AS c
    WHERE
        c.ffx_delay_until_ms <= ffx_now_ms(sqlc.narg(now_ms))
        AND (
            c.lifecycle_phase <> 'runnable'
            OR c.eligibility_state <> 'not_eligible_until_time'
            OR (
                c.deadline_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
                AND (
                    coalesce(c.ffx_execution_deadline_ms, 0) <= 0
                    OR c.ffx_execution_deadline_ms > ffx_now_ms(sqlc.narg(now_ms))
                )
            )
        )
    ORDER BY c.ffx_delay_until_ms
    LIMIT @batch_size::integer
    FOR NO KEY UPDATE SKIP LOCKED
),
forgotten AS (
    UPDATE ff_exec_core AS e
    SET ffx_delay_until_ms = NULL
    FROM due AS d
    WHERE
        e.ctid = d.row_id
        AND e.partition_key = d.partition_key
        AND e.execution_id = d.execution_id
        AND NOT d.delayed
    RETURNING e.lane_id
),
promoted AS (
    UPDATE ff_exec_core AS e
    SET
        eligibility_state = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'eligible_now'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
            ELSE 'blocked_by_quota'
        END,
        public_state = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'waiting'
            ELSE 'rate_limited'
        END,
        blocking_reason = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'waiting_for_worker'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
            ELSE 'waiting_for_quota'
        END,
        ffx_gate_id = CASE
            WHEN e.ffx_admitted IS NOT TRUE THEN coalesce(e.ffx_budget_ids[1], e.ffx_limit_ids[1])
        END,
        deadline_at_ms = CASE
            WHEN e.ffx_execution_deadline_ms > 0 THEN e.ffx_execution_deadline_ms
        END,
        ffx_delay_until_ms = NULL,
        ffx_last_mutation_at_ms = ffx_now_ms(sqlc.narg(now_ms))
    FROM due AS d
    WHERE
        e.ctid = d.row_id
        AND e.partition_key = d.partition_key
        AND e.execution_id = d.execution_id
        AND d.delayed
        AND (@fair_retries::boolean OR num_nulls(d.fair_fields) = 1)
    RETURNING
        e.partition_key,
        e.execution_id,
        e.lane_id,
        e.priority,
        d.fair_fields,
        (e.ffx_gate_id IS NOT NULL) AS gated
)
SELECT
    p.partition_key,
    p.execution_id,
    p.lane_id,
    p.priority,
    true AS promoted,
    p.gated::boolean AS gated,
    coalesce(p.fair_fields ->> 'namespace', '')::text AS namespace,
    coalesce(p.fair_fields ->> 'ffx_fair', '')::text AS fair
FROM promoted AS p
UNION ALL
SELECT
    0,
    '00000000-0000-0000-0000-000000000000',
    f.lane_id,
    0,
    false,
    false,
    '',
    ''
FROM forgotten AS f
UNION ALL
SELECT
    d.partition_key,
    d.execution_id,
    d.lane_id,
    d.priority,
    false,
    false,
    '',
    coalesce(d.fair_fields ->> 'ffx_fair', '')
FROM due AS d
WHERE
    d.delayed
    AND NOT @fair_retries::boolean
    AND num_nulls(d.fair_fields) = 0;
