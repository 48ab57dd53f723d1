-- name: ReadCompletionEvents :many
-- ReadCompletionEvents returns the completion events from from_event_id to to_event_id, oldest first and at most
-- page_size, each with the floor in the same snapshot: the greatest event id ever deleted. A single row with found =
-- false: there are none.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none; one snapshot. Spans partitions.
SELECT
    f.floor_event_id::bigint AS floor_event_id,
    (c.event_id IS NOT NULL)::boolean AS found,
    coalesce(c.event_id, 0)::bigint AS event_id,
    coalesce(c.partition_key, 0)::integer AS partition_key,
    coalesce(c.execution_id::text, '')::text AS execution_id,
    c.namespace,
    c.instance_tag,
    coalesce(c.occurred_at_ms, 0)::bigint AS occurred_at_ms,
    coalesce(c.outcome, '')::text AS outcome,
    c.flow_id::uuid AS flow_id,
    coalesce(c.committed_at_ms, 0)::bigint AS committed_at_ms
FROM (
    SELECT coalesce(
        (SELECT o.floor_event_id FROM ffx_outbox_floor AS o WHERE o.outbox = 'completion'),
        0
    ) AS floor_event_id
) AS f
LEFT JOIN LATERAL (
    SELECT
        t.event_id,
        t.partition_key,
        t.execution_id,
        t.namespace,
        t.instance_tag,
        t.occurred_at_ms,
        t.outcome,
        t.flow_id,
        t.committed_at_ms
    FROM ff_completion_event AS t
    WHERE
        t.event_id >= @from_event_id::bigint
        AND t.event_id <= @to_event_id::bigint
    ORDER BY t.event_id
    LIMIT @page_size::integer
) AS c ON true;

-- name: ReadLeaseEvents :many
-- ReadLeaseEvents is ReadCompletionEvents for lease events, with what of them is kept, in the same snapshot.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none; one snapshot. Spans partitions.
SELECT
    f.floor_event_id::bigint AS floor_event_id,
    f.kept::text AS kept,
    (c.event_id IS NOT NULL)::boolean AS found,
    coalesce(c.event_id, 0)::bigint AS event_id,
    coalesce(c.partition_key, 0)::integer AS partition_key,
    coalesce(c.execution_id, '')::text AS execution_id,
    c.namespace,
    c.instance_tag,
    coalesce(c.occurred_at_ms, 0)::bigint AS occurred_at_ms,
    coalesce(c.event_type, '')::text AS event_type,
    c.lease_id,
    c.ffx_worker_instance_id,
    c.ffx_revoked_by
FROM (
    SELECT
        coalesce(max(o.floor_event_id), 0) AS floor_event_id,
        coalesce(max(o.kept), 'all') AS kept
    FROM ffx_outbox_floor AS o
    WHERE o.outbox = 'lease'
) AS f
LEFT JOIN LATERAL (
    SELECT
        t.event_id,
        t.partition_key,
        t.execution_id,
        t.namespace,
        t.instance_tag,
        t.occurred_at_ms,
        t.event_type,
        t.lease_id,
        t.ffx_worker_instance_id,
        t.ffx_revoked_by
    FROM ff_lease_event AS t
    WHERE
        t.event_id >= @from_event_id::bigint
        AND t.event_id <= @to_event_id::bigint
    ORDER BY t.event_id
    LIMIT @page_size::integer
) AS c ON true;

-- name: ReadOperatorEvents :many
-- ReadOperatorEvents is ReadCompletionEvents for operator events.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none; one snapshot. Spans partitions.
SELECT
    f.floor_event_id::bigint AS floor_event_id,
    (c.event_id IS NOT NULL)::boolean AS found,
    coalesce(c.event_id, 0)::bigint AS event_id,
    coalesce(c.partition_key, 0)::integer AS partition_key,
    coalesce(c.execution_id, '')::text AS execution_id,
    c.namespace,
    c.instance_tag,
    coalesce(c.occurred_at_ms, 0)::bigint AS occurred_at_ms,
    coalesce(c.event_type, '')::text AS event_type,
    c.details
FROM (
    SELECT coalesce(
        (SELECT o.floor_event_id FROM ffx_outbox_floor AS o WHERE o.outbox = 'operator'),
        0
    ) AS floor_event_id
) AS f
LEFT JOIN LATERAL (
    SELECT
        t.event_id,
        t.partition_key,
        t.execution_id,
        t.namespace,
        t.instance_tag,
        t.occurred_at_ms,
        t.event_type,
        t.details
    FROM ff_operator_event AS t
    WHERE
        t.event_id >= @from_event_id::bigint
        AND t.event_id <= @to_event_id::bigint
    ORDER BY t.event_id
    LIMIT @page_size::integer
) AS c ON true;

-- name: ReadSignalEvents :many
-- ReadSignalEvents is ReadCompletionEvents for signal events.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none; one snapshot. Spans partitions.
SELECT
    f.floor_event_id::bigint AS floor_event_id,
    (c.event_id IS NOT NULL)::boolean AS found,
    coalesce(c.event_id, 0)::bigint AS event_id,
    coalesce(c.partition_key, 0)::integer AS partition_key,
    coalesce(c.execution_id, '')::text AS execution_id,
    c.namespace,
    c.instance_tag,
    coalesce(c.delivered_at_ms, 0)::bigint AS delivered_at_ms,
    coalesce(c.signal_id, '')::text AS signal_id,
    c.waitpoint_id,
    c.source_identity,
    c.ffx_effect
FROM (
    SELECT coalesce(
        (SELECT o.floor_event_id FROM ffx_outbox_floor AS o WHERE o.outbox = 'signal'),
        0
    ) AS floor_event_id
) AS f
LEFT JOIN LATERAL (
    SELECT
        t.event_id,
        t.partition_key,
        t.execution_id,
        t.namespace,
        t.instance_tag,
        t.delivered_at_ms,
        t.signal_id,
        t.waitpoint_id,
        t.source_identity,
        t.ffx_effect
    FROM ff_signal_event AS t
    WHERE
        t.event_id >= @from_event_id::bigint
        AND t.event_id <= @to_event_id::bigint
    ORDER BY t.event_id
    LIMIT @page_size::integer
) AS c ON true;
