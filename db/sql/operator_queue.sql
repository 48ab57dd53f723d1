-- name: ChangePriorities :exec
-- ChangePriorities gives executions the caller has locked another priority and appends the operator events. A trigger
-- moves their queue entries. old_priorities has their present priorities.
--
-- Used by: operator.Prioritize, operator.PrioritizeWhere.
-- Locks: L1 held; L7 new.
WITH changed AS (
    UPDATE ff_exec_core AS e
    SET
        priority = @new_priority::integer,
        ffx_last_mutation_at_ms = @now_ms::bigint
    FROM (
        SELECT
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@execution_ids::uuid[]) AS execution_id,
            unnest(@old_priorities::integer[]) AS old_priority
    ) AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        e.ffx_namespace,
        e.ffx_instance_tag,
        i.old_priority
)
INSERT INTO ff_operator_event (
    execution_id, event_type, details, occurred_at_ms, partition_key, namespace, instance_tag
)
SELECT
    c.execution_id::text,
    'priority_changed',
    jsonb_build_object('old_priority', c.old_priority, 'new_priority', @new_priority::integer),
    @now_ms::bigint,
    c.partition_key,
    c.ffx_namespace,
    c.ffx_instance_tag
FROM changed AS c;

-- name: MoveExecutions :exec
-- MoveExecutions moves claimable executions the caller has locked to another lane. A trigger moves their queue entries.
--
-- Used by: operator.Move, operator.MoveWhere.
-- Locks: L1 held.
UPDATE ff_exec_core AS e
SET
    lane_id = @lane_id::text,
    ffx_last_mutation_at_ms = @now_ms::bigint
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
WHERE
    e.partition_key = ANY (ARRAY[i.partition_key])
    AND e.execution_id = i.execution_id;

-- name: PostponeExecution :exec
-- PostponeExecution makes a waiting execution the caller has locked wait for an instant, and withdraws the admission of
-- a gate.
--
-- Used by: operator.Delay.
-- Locks: L1 held.
WITH effective AS (
    -- The deadline of the execution, 0 for none. Another program keeps the end of a delay in the same column.
    SELECT
        t.partition_key,
        t.execution_id,
        CASE
            WHEN t.ffx_execution_deadline_ms >= 0 THEN t.ffx_execution_deadline_ms
            WHEN
                t.eligibility_state <> 'not_eligible_until_time'
                OR t.blocking_reason = 'waiting_for_retry_backoff' AND t.raw_fields ->> 'delay_until' ~ '^[0-9]+$'
                THEN coalesce(t.deadline_at_ms, 0)
            ELSE 0
        END AS deadline_ms
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = @partition_key
        AND t.execution_id = @execution_id
)
UPDATE ff_exec_core AS e
SET
    eligibility_state = 'not_eligible_until_time',
    ownership_state = 'unowned',
    public_state = 'delayed',
    blocking_reason = 'waiting_for_delay',
    ffx_execution_deadline_ms = d.deadline_ms,
    deadline_at_ms = least(@delay_until_ms::bigint, nullif(d.deadline_ms, 0)),
    ffx_delay_until_ms = @delay_until_ms::bigint,
    ffx_gate_id = NULL,
    ffx_admitted = NULL,
    ffx_last_mutation_at_ms = @now_ms::bigint
FROM effective AS d
WHERE
    e.partition_key = d.partition_key
    AND e.execution_id = d.execution_id;

-- name: PromoteExecution :one
-- PromoteExecution makes a delayed execution the caller has locked claimable, or brings the execution before the gate
-- of the budget or quota. Returns the lane, and whether the execution is claimable.
--
-- Used by: operator.Delay.
-- Locks: L1 held.
WITH effective AS (
    -- The deadline of the execution, 0 for none. Another program keeps the end of a delay in the same column.
    SELECT
        t.partition_key,
        t.execution_id,
        CASE
            WHEN t.ffx_execution_deadline_ms >= 0 THEN t.ffx_execution_deadline_ms
            WHEN
                t.eligibility_state <> 'not_eligible_until_time'
                OR t.blocking_reason = 'waiting_for_retry_backoff' AND t.raw_fields ->> 'delay_until' ~ '^[0-9]+$'
                THEN coalesce(t.deadline_at_ms, 0)
            ELSE 0
        END AS deadline_ms
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = @partition_key
        AND t.execution_id = @execution_id
)
UPDATE ff_exec_core AS e
SET
    ownership_state = 'unowned',
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
    ffx_execution_deadline_ms = d.deadline_ms,
    deadline_at_ms = nullif(d.deadline_ms, 0),
    ffx_delay_until_ms = NULL,
    ffx_last_mutation_at_ms = @now_ms::bigint
FROM effective AS d
WHERE
    e.partition_key = d.partition_key
    AND e.execution_id = d.execution_id
RETURNING
    e.lane_id,
    (e.eligibility_state = 'eligible_now')::boolean AS claimable;
