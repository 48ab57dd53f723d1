-- name: InsertCancelBacklog :exec
-- InsertCancelBacklog stores which members of a flow a request has cancelled, or will cancel when their grace ends.
--
-- Used by: engine.RequestFlowCancel.
-- Locks: L0 new.
WITH header AS (
    -- The request.
    INSERT INTO ff_cancel_backlog (
        partition_key, flow_id, requested_at_ms, requester, reason, grace_until_ms,
        cancellation_policy, status
    )
    SELECT
        @partition_key,
        @flow_id,
        @now_ms::bigint,
        @requester::text,
        @reason::text,
        sqlc.narg(grace_until_ms)::bigint,
        @cancellation_policy::text,
        'pending'
    WHERE cardinality(@members::text[]) > 0
    ON CONFLICT (partition_key, flow_id) DO NOTHING
)
INSERT INTO ff_cancel_backlog_member (partition_key, flow_id, execution_id)
SELECT
    @partition_key,
    @flow_id,
    unnest(@members::text[])
ON CONFLICT (partition_key, flow_id, execution_id) DO NOTHING;

-- name: InsertFlowCancelEvent :exec
-- InsertFlowCancelEvent emits the operator event of a request to cancel a flow.
--
-- Used by: engine.RequestFlowCancel.
-- Locks: L7 new.
INSERT INTO ff_operator_event (
    execution_id, event_type, details, occurred_at_ms, partition_key, namespace, instance_tag
)
SELECT
    f.flow_id::text,
    'flow_cancel_requested',
    jsonb_build_object(
        'flow_id', f.flow_id::text,
        'cancellation_policy', @cancellation_policy::text,
        'reason', @reason::text,
        'member_count', @member_count::integer
    ),
    @now_ms::bigint,
    f.partition_key,
    coalesce(ffx_read_text(f.raw_fields, 'namespace'), 'default'),
    ffx_read_text(f.raw_fields, 'cairn.instance_id')
FROM ff_flow_core AS f
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id;

-- name: HastenCancelBacklog :execrows
-- HastenCancelBacklog makes the grace of the request that cancelled a flow end no later than grace_ms from now. No
-- rows: the grace ends no later already, or there is no such request.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: L0 waits (the row of the request, UPDATE). The caller holds the flow's exclusive lock.
UPDATE ff_cancel_backlog AS b
SET grace_until_ms = ffx_now_ms(sqlc.narg(now_ms)) + sqlc.arg(grace_ms)::bigint
WHERE
    b.partition_key = @partition_key
    AND b.flow_id = @flow_id
    AND b.grace_until_ms > ffx_now_ms(sqlc.narg(now_ms)) + sqlc.arg(grace_ms)::bigint;

-- name: LockCancelBacklog :execrows
-- LockCancelBacklog locks the request that cancelled a flow; every statement that removes members from the request
-- needs the lock. No rows: there is no request.
--
-- Used by: engine.AckFlowCancel.
-- Locks: L0 waits (the row of the request FOR UPDATE).
SELECT 1
FROM ff_cancel_backlog AS b
WHERE
    b.partition_key = @partition_key
    AND b.flow_id = @flow_id
FOR UPDATE;

-- name: TakeCancelBacklogs :many
-- TakeCancelBacklogs is LockCancelBacklog for many flows and never waits: the result has the requests no other
-- transaction holds.
--
-- Used by: upkeep.CancelFlows.
-- Locks: L0 skips (the rows of requests FOR UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
SELECT
    b.flow_id::uuid AS flow_id,
    b.reason
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.flow_id,
        t.reason
    FROM ff_cancel_backlog AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
    FOR UPDATE SKIP LOCKED
) AS b;

-- name: ScanCancelBacklog :many
-- ScanCancelBacklog finds the members of requests whose grace has ended, the earliest first, after a position. A
-- request without members has one row with an empty execution_id.
--
-- Used by: upkeep.CancelFlows.
-- Locks: none. Spans partitions.
SELECT
    b.due_at_ms::bigint AS due_at_ms,
    b.partition_key,
    b.flow_id::uuid AS flow_id,
    coalesce(m.execution_id, '')::text AS execution_id
FROM (
    SELECT
        coalesce(t.grace_until_ms, t.requested_at_ms) AS due_at_ms,
        t.partition_key,
        t.flow_id
    FROM ff_cancel_backlog AS t
    WHERE
        coalesce(t.grace_until_ms, t.requested_at_ms) <= ffx_now_ms(sqlc.narg(now_ms))
        AND (coalesce(t.grace_until_ms, t.requested_at_ms), t.partition_key, t.flow_id)
        >= (@after_due_at_ms::bigint, @after_partition_key::smallint, @after_flow_id::uuid)
        AND t.status = 'pending'
    ORDER BY
        coalesce(t.grace_until_ms, t.requested_at_ms),
        t.partition_key,
        t.flow_id
) AS b
LEFT JOIN LATERAL (
    SELECT t.execution_id
    FROM ff_cancel_backlog_member AS t
    WHERE
        t.partition_key = b.partition_key
        AND t.flow_id = b.flow_id
        AND (
            (b.due_at_ms, b.partition_key, b.flow_id)
            > (@after_due_at_ms::bigint, @after_partition_key::smallint, @after_flow_id::uuid)
            OR t.execution_id > @after_execution_id::text
        )
    -- By the whole key: another index has the order of execution_id, but not the flow.
    ORDER BY
        t.partition_key,
        t.flow_id,
        t.execution_id
    LIMIT @page_size::integer
) AS m ON true
WHERE
    m.execution_id IS NOT NULL
    OR (b.due_at_ms, b.partition_key, b.flow_id) > (@after_due_at_ms::bigint, @after_partition_key::smallint, @after_flow_id::uuid)
ORDER BY
    b.due_at_ms,
    b.partition_key,
    b.flow_id,
    m.execution_id
LIMIT @page_size::integer;

-- name: DropBacklogMembers :execrows
-- DropBacklogMembers removes members from the requests that cancelled their flows, and returns how many were removed.
--
-- Used by: engine.AckFlowCancel, upkeep.CancelFlows.
-- Locks: L0 waits (the rows of members, DELETE; the caller holds the row of the request).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::text[]) AS execution_id
    LIMIT cardinality(@partition_keys::smallint[])
)
DELETE FROM ff_cancel_backlog_member AS m
USING input AS i
WHERE
    m.partition_key = ANY (ARRAY[i.partition_key])
    AND m.flow_id = i.flow_id
    AND m.execution_id = i.execution_id;

-- name: DropEmptyBacklogs :execrows
-- DropEmptyBacklogs deletes the requests without members left, and returns how many were deleted. The caller has locked
-- the requests in an earlier statement and removed members in another.
--
-- Used by: engine.AckFlowCancel, upkeep.CancelFlows.
-- Locks: L0 waits (the rows of requests, DELETE: already locked).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
DELETE FROM ff_cancel_backlog AS b
USING input AS i
WHERE
    b.partition_key = ANY (ARRAY[i.partition_key])
    AND b.flow_id = i.flow_id
    AND NOT EXISTS (
        SELECT
        FROM ff_cancel_backlog_member AS m
        WHERE
            m.partition_key = i.partition_key
            AND m.flow_id = i.flow_id
    );
