-- name: ListExecutions :many
-- ListExecutions pages through the executions by primary key, strictly after one, up to a last partition, with the
-- facts their outcome is derived from.
--
-- Used by: engine.ListExecutions.
-- Locks: none.
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.lane_id,
    coalesce(e.ffx_namespace, '')::text AS namespace,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    coalesce(e.raw_fields ->> 'ffx_node_key', '')::text AS node_key,
    coalesce(e.ffx_created_at_ms, e.created_at_ms)::bigint AS created_at_ms,
    e.terminal_at_ms,
    e.lifecycle_phase,
    e.eligibility_state,
    e.public_state,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    e.lease_reclaim_count,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome
FROM ff_exec_core AS e
LEFT JOIN LATERAL (
    SELECT c.outcome
    FROM ff_attempt AS c
    WHERE
        c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN LATERAL (
    SELECT t.outcome
    FROM ff_attempt AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND t.attempt_index = e.attempt_index
    LIMIT 1
) AS p ON true
WHERE
    (e.partition_key, e.execution_id) > (@after_partition_key::smallint, @after_execution_id::uuid)
    AND e.partition_key <= @last_partition_key::smallint
ORDER BY
    e.partition_key,
    e.execution_id
LIMIT @page_size::integer;

-- name: ListNamedExecutions :many
-- ListNamedExecutions returns the given executions that match a filter, with the columns of ListExecutions, in no
-- order. An empty text or a NULL in the filter matches all. worker_id and worker_instance_id match the holder of the
-- lease.
--
-- Used by: engine.ListExecutions.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.lane_id,
    coalesce(e.ffx_namespace, '')::text AS namespace,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    coalesce(e.raw_fields ->> 'ffx_node_key', '')::text AS node_key,
    coalesce(e.ffx_created_at_ms, e.created_at_ms)::bigint AS created_at_ms,
    e.terminal_at_ms,
    e.lifecycle_phase,
    e.eligibility_state,
    e.public_state,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    e.lease_reclaim_count,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.execution_id,
        x.flow_id,
        x.lane_id,
        x.attempt_index,
        x.created_at_ms,
        x.ffx_created_at_ms,
        x.terminal_at_ms,
        x.lifecycle_phase,
        x.ownership_state,
        x.eligibility_state,
        x.public_state,
        x.cancellation_reason,
        x.raw_fields,
        x.ffx_namespace,
        x.lease_reclaim_count
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.execution_id = i.execution_id
    LIMIT 1
) AS e
LEFT JOIN LATERAL (
    SELECT
        c.outcome,
        c.attempt_index,
        c.worker_id,
        c.worker_instance_id,
        c.lease_expires_at_ms
    FROM ff_attempt AS c
    WHERE
        c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN LATERAL (
    -- If there is an attempt of this index, it is the newest. A second lookup would cost as much as the execution's.
    SELECT t.outcome
    FROM unnest(ARRAY[cur.outcome]) AS t (outcome)
    WHERE cur.attempt_index = e.attempt_index
) AS p ON true
WHERE
    (@namespace::text = '' OR e.ffx_namespace = @namespace::text)
    AND (@lane_id::text = '' OR e.lane_id = @lane_id::text)
    AND (@execution_kind::text = '' OR e.raw_fields ->> 'execution_kind' = @execution_kind::text)
    AND (@tag_key::text = '' OR e.raw_fields -> 'tags' ->> @tag_key::text = @tag_value::text)
    AND (sqlc.narg(created_from_ms)::bigint IS NULL OR coalesce(e.ffx_created_at_ms, e.created_at_ms) >= sqlc.narg(created_from_ms)::bigint)
    AND (sqlc.narg(created_before_ms)::bigint IS NULL OR coalesce(e.ffx_created_at_ms, e.created_at_ms) < sqlc.narg(created_before_ms)::bigint)
    AND (cardinality(@phases::text[]) = 0 OR e.lifecycle_phase = ANY (@phases::text[]))
    AND (
        @worker_id::text = '' AND @worker_instance_id::text = ''
        OR e.ownership_state IN ('leased', 'lease_expired_reclaimable')
        AND cur.lease_expires_at_ms IS NOT NULL
        AND cur.worker_instance_id IS NOT NULL
        AND (@worker_id::text = '' OR cur.worker_id = @worker_id::text)
        AND (@worker_instance_id::text = '' OR cur.worker_instance_id = @worker_instance_id::text)
    );

-- name: ListExecutionKeys :many
-- ListExecutionKeys pages through the ids of the executions by primary key, strictly after one, up to a last partition.
--
-- Used by: engine.ListExecutions.
-- Locks: none.
SELECT
    e.partition_key,
    e.execution_id
FROM ff_exec_core AS e
WHERE
    (e.partition_key, e.execution_id) > (@after_partition_key::smallint, @after_execution_id::uuid)
    AND e.partition_key <= @last_partition_key::smallint
ORDER BY
    e.partition_key,
    e.execution_id
LIMIT @page_size::integer;

-- name: ListNewestKeys :many
-- ListNewestKeys returns up to page_size ids of executions of each given partition, downwards from one, which is
-- included, to a least one. The rows come by partition in the order of the input, then downwards.
--
-- Passages: keys_of_partitions.
-- Used by: engine.ListExecutions.
-- Locks: none.
WITH input AS (
    -- The partitions, and the id from which to go on in each. The two comparisons and the order are parameters.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@from_ids::uuid[]) AS from_id
)
SELECT
    e.partition_key,
    e.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.execution_id
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.execution_id <= i.from_id
        AND x.execution_id >= @to_id::uuid
    ORDER BY x.execution_id DESC
    LIMIT @page_size::integer
) AS e;

-- name: ListOldestKeys :many
-- ListOldestKeys is ListNewestKeys upwards, not above a greatest id.
--
-- Passages: keys_of_partitions.
-- Used by: engine.ListExecutions.
-- Locks: none.
WITH input AS (
    -- The partitions, and the id from which to go on in each. The two comparisons and the order are parameters.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@from_ids::uuid[]) AS from_id
)
SELECT
    e.partition_key,
    e.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.execution_id
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.execution_id >= i.from_id
        AND x.execution_id <= @to_id::uuid
    ORDER BY x.execution_id ASC
    LIMIT @page_size::integer
) AS e;

-- name: ListLeasedKeys :many
-- ListLeasedKeys returns the executions with a lease, in no order, optionally of one worker or instance. All are
-- returned, unless looked_at reports more than max_items to examine. Without a worker or instance the attempts are not
-- looked up: some may have ended. A single row with -1: there is none.
--
-- Used by: engine.ListExecutions.
-- Locks: none. Spans partitions.
WITH items AS MATERIALIZED (
    -- The attempts the lease timers list, and one more than the limit.
    SELECT
        t.partition_key,
        t.execution_id,
        t.attempt_index
    FROM (
        SELECT
            unnest(w.partition_keys) AS partition_key,
            unnest(w.execution_ids) AS execution_id,
            unnest(w.attempt_indexes) AS attempt_index
        FROM ffx_lease_timer AS w
        ORDER BY
            w.due_at_ms,
            w.timer_id
    ) AS t
    LIMIT sqlc.arg(max_items)::integer + 1
)
SELECT
    l.looked_at::bigint AS looked_at,
    coalesce(x.partition_key, -1)::smallint AS partition_key,
    CAST(coalesce(x.execution_id, '00000000-0000-0000-0000-000000000000') AS uuid) AS execution_id
FROM (SELECT count(*) AS looked_at FROM items) AS l
LEFT JOIN LATERAL (
    SELECT DISTINCT
        i.partition_key,
        i.execution_id
    FROM items AS i
    LEFT JOIN LATERAL (
        SELECT
            a.worker_id,
            a.worker_instance_id,
            a.lease_expires_at_ms
        FROM ff_attempt AS a
        WHERE
            @worker_id::text || @worker_instance_id::text <> ''
            AND a.partition_key = i.partition_key
            AND a.execution_id = i.execution_id
            AND a.attempt_index = i.attempt_index
        LIMIT 1
    ) AS held ON true
    WHERE
        l.looked_at <= @max_items::integer
        AND (held.lease_expires_at_ms IS NOT NULL OR @worker_id::text || @worker_instance_id::text = '')
        AND (@worker_id::text = '' OR held.worker_id = @worker_id::text)
        AND (@worker_instance_id::text = '' OR held.worker_instance_id = @worker_instance_id::text)
) AS x ON true;

-- name: ListQueuedKeys :many
-- ListQueuedKeys pages through the queue entries of a lane in claim order, strictly after one.
--
-- Used by: engine.ListExecutions.
-- Locks: none. Spans partitions.
SELECT
    r.rank,
    r.created_at_ms,
    r.execution_id,
    r.partition_key
FROM ffx_ready AS r
WHERE
    r.lane_id = @lane_id
    AND (r.rank, r.created_at_ms, r.execution_id, r.partition_key)
    > (@after_rank::bigint, @after_created_at_ms::bigint, @after_execution_id::uuid, @after_partition_key::smallint)
ORDER BY
    r.rank,
    r.created_at_ms,
    r.execution_id,
    r.partition_key
LIMIT @page_size::integer;

-- name: ListEndedKeys :many
-- ListEndedKeys returns the executions of the newest completion events before one, with one of the outcomes and
-- optionally of a namespace, the newest event first. max_ends events are examined. The row of the last of these has
-- fits = false if the event is of another outcome or namespace. An execution that ended more than once has several rows.
--
-- Used by: engine.ListExecutions.
-- Locks: none. Spans partitions.
SELECT
    o.event_id,
    o.partition_key,
    o.execution_id,
    o.occurred_at_ms,
    o.fits::boolean AS fits,
    (o.nth = @max_ends::integer)::boolean AS is_last
FROM (
    SELECT
        t.event_id,
        t.partition_key,
        t.execution_id,
        t.occurred_at_ms,
        (t.outcome = ANY (@outcomes::text[]) AND (@namespace::text = '' OR t.namespace = @namespace::text)) IS TRUE AS fits,
        row_number() OVER (ORDER BY t.event_id DESC, t.partition_key DESC) AS nth
    FROM (
        SELECT
            c.event_id,
            c.partition_key,
            c.execution_id,
            c.occurred_at_ms,
            c.outcome,
            c.namespace
        FROM ff_completion_event AS c
        WHERE (c.event_id, c.partition_key) < (@before_event_id::bigint, @before_partition_key::smallint)
        ORDER BY
            c.event_id DESC,
            c.partition_key DESC
        LIMIT @max_ends::integer
    ) AS t
) AS o
WHERE
    o.fits
    OR o.nth = @max_ends::integer
ORDER BY
    o.event_id DESC,
    o.partition_key DESC
LIMIT @page_size::integer;

-- name: FindExecution :many
-- FindExecution returns the partitions with an execution of a given uuid: one, none, or several if callers chose the
-- ids themselves.
--
-- Used by: engine.FindExecution.
-- Locks: none. Spans partitions: looks the uuid up in each.
SELECT e.partition_key::smallint AS partition_key
FROM (SELECT unnest(@partition_keys::smallint[]) AS partition_key LIMIT cardinality(@partition_keys::smallint[])) AS i
CROSS JOIN LATERAL (
    SELECT x.partition_key
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.execution_id = @execution_id
    LIMIT 1
) AS e;
