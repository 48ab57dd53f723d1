-- name: ScanLeftHalfDone :many
-- ScanLeftHalfDone examines the executions behind (after_partition_key, after_execution_id), in the order of the primary
-- key, up to and including (last_partition_key, last_execution_id), and returns those that FlowFabric left half-done.
-- left_as: foreign (a state, an instant or an attachment in its form), mispointed (the pointer is not at the attempt
-- that goes on), half-ended (with a lease, or without an event) or mistold (ended under another public state). The
-- caller has examined the same page with ScanRepairs, in a shared database. No row: there are none.
--
-- Used by: engine.RepairQueue.
-- Locks: none. Spans partitions.
WITH page AS (
    -- The executions of the page.
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        coalesce(e.raw_fields ->> 'quota_policy_id', '') AS quota_policy_id,
        CASE
            WHEN e.lifecycle_phase IN ('terminal', 'cancelled') THEN
                CASE
                    WHEN (
                        e.ownership_state = 'leased'
                        OR (e.lifecycle_phase = 'cancelled' OR e.public_state = 'cancelled')
                        AND coalesce(e.ffx_last_mutation_at_ms, 0) < e.terminal_at_ms
                    )
                    AND e.terminal_at_ms > ffx_now_ms(sqlc.narg(now_ms)) - 86400000
                        THEN 'half-ended'
                    WHEN e.public_state NOT IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
                        AND e.terminal_at_ms < ffx_now_ms(sqlc.narg(now_ms)) - 60000
                        THEN 'mistold'
                END
            WHEN e.lifecycle_phase NOT IN ('runnable', 'submitted', 'pending', 'eligible', 'blocked')
                OR e.ownership_state NOT IN ('unowned', 'released')
                OR e.eligibility_state = 'pending_claim'
                OR e.ffx_retry_count IS NULL
                THEN NULL
            WHEN e.lifecycle_phase <> 'runnable'
                OR e.attempt_state IN ('pending', 'pending_claim', 'initial')
                THEN 'foreign'
            WHEN e.eligibility_state = 'not_eligible_until_time' THEN
                CASE
                    WHEN e.ffx_delay_until_ms IS NULL
                        OR e.deadline_at_ms IS DISTINCT FROM least(
                            e.ffx_delay_until_ms,
                            CASE WHEN e.ffx_execution_deadline_ms > 0 THEN e.ffx_execution_deadline_ms END
                        )
                        THEN 'foreign'
                END
            WHEN e.ffx_execution_deadline_ms >= 0
                AND coalesce(e.deadline_at_ms, 0) <> e.ffx_execution_deadline_ms
                THEN 'foreign'
            WHEN e.eligibility_state = 'eligible_now'
                AND e.ffx_admitted IS NOT TRUE
                AND (e.ffx_budget_ids IS NOT NULL OR e.ffx_limit_ids IS NOT NULL)
                THEN 'foreign'
            WHEN e.eligibility_state = 'eligible_now'
                AND e.flow_id IS NOT NULL
                AND e.started_at_ms IS NULL
                AND e.attempt_state = 'pending_first_attempt'
                -- Looked up one by one here and below, by LIMIT: a plan that reads a whole table would be kept.
                AND (
                    SELECT true
                    FROM ff_edge AS d
                    WHERE
                        d.downstream_eid = ANY (ARRAY[e.execution_id])
                        AND (d.partition_key = e.partition_key OR d.partition_key IS NULL)
                        AND (d.flow_id = e.flow_id) IS TRUE
                        AND NOT d.policy ? 'resolved_at_ms'
                    LIMIT 1
                )
                THEN 'foreign'
            WHEN e.attempt_state = 'attempt_interrupted' AND (
                SELECT true
                FROM ff_attempt AS t
                WHERE
                    t.partition_key = e.partition_key
                    AND t.execution_id = e.execution_id
                    AND t.attempt_index = e.attempt_index
                LIMIT 1
            ) IS NULL
                THEN 'mispointed'
            WHEN e.attempt_state = 'pending_retry_attempt' AND (
                SELECT t.terminal_at_ms
                FROM ff_attempt AS t
                WHERE
                    t.partition_key = e.partition_key
                    AND t.execution_id = e.execution_id
                    AND t.attempt_index = e.attempt_index
                LIMIT 1
            ) IS NOT NULL
                THEN 'mispointed'
        END AS left_as
    FROM ff_exec_core AS e
    WHERE
        (e.partition_key, e.execution_id) > (@after_partition_key::smallint, @after_execution_id::uuid)
        AND (e.partition_key, e.execution_id) <= (@last_partition_key::smallint, @last_execution_id::uuid)
    ORDER BY
        e.partition_key,
        e.execution_id
    LIMIT @page_size::integer
)
SELECT
    p.partition_key,
    p.execution_id,
    p.flow_id,
    p.quota_policy_id::text AS quota_policy_id,
    p.left_as::text AS left_as
FROM page AS p
WHERE p.left_as IS NOT NULL
ORDER BY
    p.partition_key,
    p.execution_id;
