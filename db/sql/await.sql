-- name: ListEnded :many
-- ListEnded returns the listed executions that have ended, or do not exist, with their results and the facts their
-- outcome is derived from. with_results is false for an execution whose result is not wanted. No row: the execution has
-- not ended. ord is the position in the list.
--
-- Used by: engine.AwaitExecution, engine.AwaitFlow, engine.CalledResults.
-- Locks: none; one snapshot. Spans partitions.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@with_results::boolean[]) AS with_result,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    (e.execution_id IS NOT NULL)::boolean AS found,
    r.result,
    coalesce(e.lifecycle_phase, '')::text AS lifecycle_phase,
    coalesce(e.eligibility_state, '')::text AS eligibility_state,
    coalesce(e.public_state, '')::text AS public_state,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome
FROM input AS i
LEFT JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.attempt_index,
        t.lifecycle_phase,
        t.eligibility_state,
        t.public_state,
        t.cancellation_reason,
        t.raw_fields
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    -- In a separate sub-select: sqlc knows the type of a column, but not of an expression.
    SELECT t.result
    FROM ff_exec_core AS t
    WHERE
        i.with_result
        AND t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
    LIMIT 1
) AS r ON true
LEFT JOIN LATERAL (
    SELECT c.outcome
    FROM ff_attempt AS c
    WHERE
        i.with_result
        AND c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN LATERAL (
    SELECT x.outcome
    FROM ff_attempt AS x
    WHERE
        i.with_result
        AND x.partition_key = e.partition_key
        AND x.execution_id = e.execution_id
        AND x.attempt_index = e.attempt_index
    LIMIT 1
) AS p ON true
WHERE
    e.lifecycle_phase IS NULL
    OR e.lifecycle_phase IN ('terminal', 'cancelled');

-- name: ListOpenMembers :many
-- ListOpenMembers returns members not ended, at most page_size of each listed flow, in no order. No row: all members of
-- the flow have ended, or the flow has no members.
--
-- Used by: engine.AwaitFlow.
-- Locks: none; one snapshot. Spans partitions.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    m.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT e.execution_id
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = i.partition_key
        AND e.flow_id = i.flow_id
        AND e.lifecycle_phase NOT IN ('terminal', 'cancelled')
    LIMIT @page_size::integer
) AS m;
