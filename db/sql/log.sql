-- name: InsertAction :exec
-- InsertAction appends the operator event of an action that is not about one execution, in partition 0.
--
-- Used by: operator.RecordAction.
-- Locks: L7 new.
INSERT INTO ff_operator_event (event_type, details, occurred_at_ms, partition_key)
VALUES ('action', sqlc.arg(details)::text::jsonb, ffx_now_ms(sqlc.narg(now_ms)), 0);

-- name: InsertExecutionAction :execrows
-- InsertExecutionAction appends the operator event of an action on an execution. 0 rows: the execution does not exist.
--
-- Used by: operator.RecordAction.
-- Locks: L7 new.
INSERT INTO ff_operator_event (
    execution_id, event_type, details, occurred_at_ms, partition_key, namespace, instance_tag
)
SELECT
    e.execution_id::text,
    'action',
    sqlc.arg(details)::text::jsonb,
    ffx_now_ms(sqlc.narg(now_ms)),
    e.partition_key,
    e.ffx_namespace,
    e.ffx_instance_tag
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: ListOperatorEvents :many
-- ListOperatorEvents returns the operator events strictly before before_event_id that match a filter, newest first and
-- at most page_size, among the next max_examined. An empty text in the filter matches all. Each row has the number of
-- examined events and the id of the oldest one. A single row with found = false: none matches.
--
-- Used by: operator.ListLog.
-- Locks: none; one snapshot. Spans partitions.
SELECT
    b.examined::bigint AS examined,
    b.oldest_event_id::bigint AS oldest_event_id,
    (o.event_id IS NOT NULL)::boolean AS found,
    coalesce(o.event_id, 0)::bigint AS event_id,
    coalesce(o.partition_key, 0)::integer AS partition_key,
    coalesce(o.execution_id, '')::text AS execution_id,
    coalesce(o.occurred_at_ms, 0)::bigint AS occurred_at_ms,
    coalesce(o.event_type, '')::text AS event_type,
    o.details
FROM (
    SELECT
        count(*) AS examined,
        coalesce(min(n.event_id), 0) AS oldest_event_id
    FROM (
        SELECT x.event_id
        FROM ff_operator_event AS x
        WHERE x.event_id < @before_event_id::bigint
        ORDER BY x.event_id DESC
        LIMIT @max_examined::integer
    ) AS n
) AS b
LEFT JOIN LATERAL (
    SELECT
        t.event_id,
        t.partition_key,
        t.execution_id,
        t.occurred_at_ms,
        t.event_type,
        t.details
    FROM ff_operator_event AS t
    WHERE
        t.event_id < @before_event_id::bigint
        AND t.event_id >= b.oldest_event_id
        AND (@execution_id::text = '' OR (t.partition_key = @partition_key::integer AND t.execution_id = @execution_id::text))
        AND (@by_whom::text = '' OR t.details ->> 'by' = @by_whom::text)
    ORDER BY t.event_id DESC
    LIMIT @page_size::integer
) AS o ON true
ORDER BY o.event_id DESC;
