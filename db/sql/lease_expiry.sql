-- name: LookAtLeases :many
-- LookAtLeases takes, after a position, the due timers of about max_items leases, and returns the expired leases,
-- oldest first. Every row has the position reached; if no lease has expired, a single row has only the position. No
-- row: no timer is due.
--
-- The timers are replaced. A returned lease, or a lease whose execution is gone, gets none. A renewed lease gets a
-- timer for the next expiry. An expired lease stays due as long as the attempt has the lease, with a timer before the
-- first one taken here: a caller continuing after the position, or another caller further on, does not get the lease
-- again. may_end is a forecast that the loss ends the execution, so the caller can lock the flow before any row.
--
-- A lease taken while the statement runs has a separate timer.
--
-- Used by: upkeep.ExpireLeases.
-- Locks: timers skips (FOR UPDATE, then the DELETE). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
due AS (
    -- The next due lease timers, locked, with the number of leases listed before each.
    SELECT
        d.timer_row_id,
        d.due_at_ms,
        d.timer_id,
        sum(d.items) OVER (ORDER BY d.due_at_ms, d.timer_id) - d.items AS earlier
    FROM (
        SELECT
            w.ctid::tid AS timer_row_id,
            w.due_at_ms,
            w.timer_id,
            cardinality(w.execution_ids) AS items
        FROM ffx_lease_timer AS w
        WHERE
            w.due_at_ms <= (SELECT now_ms FROM clock)
            AND (w.due_at_ms, w.timer_id) > (@after_due_at_ms::bigint, @after_timer_id::uuid)
        ORDER BY
            w.due_at_ms,
            w.timer_id
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS d
),
taken AS (
    -- The first timers, listing about max_items leases, deleted.
    DELETE FROM ffx_lease_timer AS w
    USING due AS d
    WHERE
        w.ctid = d.timer_row_id
        AND w.due_at_ms = d.due_at_ms
        AND w.timer_id = d.timer_id
        AND d.earlier < @max_items::bigint
    RETURNING
        w.due_at_ms,
        w.timer_id,
        w.partition_keys,
        w.execution_ids,
        w.attempt_indexes
),
items AS (
    -- The listed attempts.
    SELECT
        unnest(t.partition_keys) AS partition_key,
        unnest(t.execution_ids) AS execution_id,
        unnest(t.attempt_indexes) AS attempt_index
    FROM taken AS t
),
leased AS (
    -- The attempts that still have a lease.
    SELECT DISTINCT
        a.partition_key,
        a.execution_id,
        a.attempt_index,
        a.lease_epoch,
        a.lease_expires_at_ms,
        a.ffx_timeout_at_ms
    FROM items AS i
    -- Looked up one by one: a planner that expects no leases would read every attempt.
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            t.attempt_index,
            t.lease_epoch,
            t.lease_expires_at_ms,
            t.ffx_timeout_at_ms
        FROM ff_attempt AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.attempt_index = i.attempt_index
        LIMIT 1
    ) AS a
    WHERE a.lease_expires_at_ms IS NOT NULL
),
held AS (
    -- The attempts with their executions: whether the lease expired, and whether the loss may end the execution.
    SELECT
        l.partition_key,
        l.execution_id,
        l.attempt_index,
        l.lease_expires_at_ms,
        l.lease_expires_at_ms <= (SELECT now_ms FROM clock) AS expired,
        -- A timer lists as many leases as one for the largest claim.
        (row_number() OVER (
            PARTITION BY l.lease_expires_at_ms <= (SELECT now_ms FROM clock) ORDER BY l.lease_expires_at_ms
        ) - 1) / 1000 AS part,
        e.flow_id,
        (e.lifecycle_phase = 'active' AND (
            (l.lease_epoch = e.ffx_lease_epoch AND l.ffx_timeout_at_ms <= (SELECT now_ms FROM clock)) IS TRUE
            OR ffx_lost_too_often(e.lease_reclaim_count, e.policy, @default_cap::integer)
        ))::boolean AS may_end
    FROM leased AS l
    CROSS JOIN LATERAL (
        SELECT
            c.flow_id,
            c.lifecycle_phase,
            c.lease_reclaim_count,
            c.policy,
            c.ffx_lease_epoch
        FROM ff_exec_core AS c
        WHERE
            c.partition_key = l.partition_key
            AND c.execution_id = l.execution_id
        LIMIT 1
    ) AS e
),
timed AS (
    -- New lease timers for all.
    INSERT INTO ffx_lease_timer (
        due_at_ms, timer_id, partition_keys, execution_ids, attempt_indexes
    )
    SELECT
        least(min(h.lease_expires_at_ms), (SELECT min(t.due_at_ms) - 1 FROM taken AS t WHERE h.expired)),
        gen_random_uuid(),
        array_agg(h.partition_key),
        array_agg(h.execution_id),
        array_agg(h.attempt_index)
    FROM held AS h
    GROUP BY
        h.expired,
        h.part
)
SELECT
    r.due_at_ms AS reached_due_at_ms,
    r.timer_id AS reached_timer_id,
    coalesce(x.partition_key, 0)::smallint AS partition_key,
    x.execution_id,
    coalesce(x.attempt_index, 0)::integer AS attempt_index,
    x.flow_id,
    coalesce(x.may_end, false)::boolean AS may_end
FROM (
    SELECT
        t.due_at_ms,
        t.timer_id
    FROM taken AS t
    ORDER BY
        t.due_at_ms DESC,
        t.timer_id DESC
    LIMIT 1
) AS r
LEFT JOIN held AS x ON x.expired
ORDER BY
    x.lease_expires_at_ms,
    x.execution_id;

-- name: ForgetLeaseTimers :exec
-- ForgetLeaseTimers deletes lease timers whose leases have all ended. A timer LookAtLeases took in the meantime is
-- gone, and the remaining leases are in a new one; a timer LookAtLeases holds at the moment is skipped.
--
-- Used by: upkeep.ExpireLeases.
-- Locks: timers skips (FOR UPDATE, then the DELETE).
DELETE FROM ffx_lease_timer AS w
USING (
    SELECT
        l.timer_row_id,
        i.due_at_ms,
        i.timer_id
    FROM (
        SELECT
            unnest(@due_at_ms::bigint[]) AS due_at_ms,
            unnest(@timer_ids::uuid[]) AS timer_id
    ) AS i
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS timer_row_id
        FROM ffx_lease_timer AS t
        WHERE
            t.due_at_ms = i.due_at_ms
            AND t.timer_id = i.timer_id
        FOR UPDATE SKIP LOCKED
    ) AS l
) AS d
WHERE
    w.ctid = d.timer_row_id
    AND w.due_at_ms = d.due_at_ms
    AND (w.timer_id = d.timer_id) IS TRUE;

-- name: TakeExpiredLeases :many
-- TakeExpiredLeases locks the first max_items of the given attempts, with their executions, whose lease is still due
-- and not locked elsewhere; the rest wait for the next scan. timed_out: the attempt has also run longer than the
-- timeout.
--
-- Used by: upkeep.ExpireLeases.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE); L2 skips (attempt rows FOR UPDATE). Only columns of the locked
-- rows decide.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index
)
SELECT
    t.partition_key,
    t.execution_id,
    t.flow_id,
    t.lifecycle_phase,
    t.policy,
    coalesce(t.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(t.exec_fields ->> 'retry_count', '')::text AS raw_retry_count,
    coalesce(t.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    ffx_lost_too_often(t.lease_reclaim_count, t.policy, @default_cap::integer)::boolean AS lost_too_often,
    ((
        t.pointer = t.attempt_index
        AND t.lease_epoch = t.ffx_lease_epoch
        AND t.ffx_timeout_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ) IS TRUE)::boolean AS timed_out,
    t.attempt_index,
    t.lease_epoch,
    coalesce(t.worker_instance_id, '')::text AS worker_instance_id,
    -- Another program keeps the id of a lease in raw_fields; the library uses the column.
    coalesce(CASE
        WHEN t.lease_epoch = t.ffx_lease_epoch THEN t.ffx_lease_id::text
        ELSE t.raw_fields ->> 'lease_id'
    END, '')::text AS lease_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        e.lifecycle_phase,
        e.policy,
        e.ffx_retry_count,
        e.raw_fields AS exec_fields,
        e.ffx_lease_epoch,
        e.lease_reclaim_count,
        e.attempt_index AS pointer,
        a.attempt_index,
        a.lease_epoch,
        a.worker_instance_id,
        a.ffx_lease_id,
        a.ffx_timeout_at_ms,
        a.raw_fields
    FROM ff_exec_core AS e
    JOIN ff_attempt AS a ON a.partition_key = e.partition_key AND a.execution_id = e.execution_id
    WHERE
        e.partition_key = i.partition_key
        AND e.execution_id = i.execution_id
        AND a.attempt_index = i.attempt_index
        AND a.lease_expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    FOR NO KEY UPDATE OF e SKIP LOCKED
    FOR UPDATE OF a SKIP LOCKED
) AS t
LIMIT @max_items::integer;

-- name: ReleaseExpiredLeases :many
-- ReleaseExpiredLeases returns executions whose worker fell silent to their lanes, under a raised epoch: the next claim
-- resumes the same attempt. Returns the lanes with work to claim now.
--
-- Passages: set_released, set_attempt_released, lease_events.
-- Used by: upkeep.ExpireLeases, upkeep.RepairQueue.
-- Locks: L1 held; L2 held; L7 new.
WITH input AS (
    -- The lost leases.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@raised_epochs::bigint[]) AS raised_epoch,
        nullif(unnest(@lease_ids::text[]), '') AS lease_id,
        nullif(unnest(@worker_instance_ids::text[]), '') AS worker_instance_id
),
released AS (
    -- Their executions, claimable again.
    UPDATE ff_exec_core AS e
    SET
        lease_reclaim_count = greatest(e.lease_reclaim_count, 0) + 1,
        -- Makes an execution claimable again after the loss of a lease: the attempt goes on, under a raised epoch.
        lifecycle_phase = 'runnable',
        ownership_state = 'unowned',
        eligibility_state = 'eligible_now',
        public_state = 'waiting',
        attempt_state = 'attempt_interrupted',
        blocking_reason = 'waiting_for_worker',
        attempt_index = i.attempt_index,
        ffx_gate_id = NULL,
        ffx_lease_epoch = i.raised_epoch,
        ffx_last_mutation_at_ms = @now_ms::bigint
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
        AND e.lifecycle_phase = 'active'
    RETURNING
        e.partition_key,
        e.execution_id,
        e.lane_id,
        i.attempt_index,
        i.raised_epoch,
        i.lease_id,
        i.worker_instance_id,
        e.ffx_namespace,
        e.ffx_instance_tag
),
released_attempts AS (
    -- The attempts, fenced and without a lease.
    UPDATE ff_attempt AS a
    SET
        outcome = 'lease_expired_reclaimable',
        -- Frees an attempt a of the lease, under a raised epoch, and notes the worker that lost the lease; the newest 32 are
        -- kept.
        raw_fields = CASE
            WHEN a.worker_instance_id IS NULL THEN a.raw_fields
            ELSE jsonb_set(
                a.raw_fields,
                '{ffx_lost_leases}',
                jsonb_path_query_array(a.raw_fields, '$.ffx_lost_leases[last - 30 to last]') || jsonb_build_object(
                    'worker', a.worker_id,
                    'instance', a.worker_instance_id,
                    'epoch', a.lease_epoch,
                    'at', @now_ms::bigint,
                    'how', 'expired'
                )
            )
        END,
        lease_expires_at_ms = NULL,
        ffx_timeout_at_ms = NULL,
        worker_id = NULL,
        worker_instance_id = NULL,
        terminal_at_ms = NULL,
        lease_epoch = r.raised_epoch
    FROM released AS r
    WHERE
        a.partition_key = ANY (ARRAY[r.partition_key])
        AND a.execution_id = r.execution_id
        AND a.attempt_index = r.attempt_index
),
lease_events AS (
    -- The lease events.
    INSERT INTO ff_lease_event (
        -- Takes released (partition_key, execution_id, lease_id, worker_instance_id, ffx_namespace, ffx_instance_tag).
        execution_id,
        lease_id,
        event_type,
        occurred_at_ms,
        partition_key,
        namespace,
        instance_tag,
        ffx_worker_instance_id,
        ffx_revoked_by
    )
    SELECT
        r.execution_id::text,
        r.lease_id,
        'expired',
        @now_ms::bigint,
        r.partition_key,
        r.ffx_namespace,
        r.ffx_instance_tag,
        r.worker_instance_id,
        NULL
    FROM released AS r
    WHERE
        -- Without columns of r it is asked once, and a value that is not kept costs no scan.
        coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
        IN ('all', CASE WHEN 'expired' = 'expired' OR NULL IN ('operator', 'reconciler') THEN 'lost' END)
)
SELECT DISTINCT r.lane_id
FROM released AS r;

-- name: FenceStrayLeases :exec
-- FenceStrayLeases clears expired leases of attempts no longer running: the execution is not active, or is at a later
-- attempt. The outcome stays, and there is no event.
--
-- Used by: upkeep.ExpireLeases.
-- Locks: L2 held, since TakeExpiredLeases.
UPDATE ff_attempt AS a
SET
    lease_expires_at_ms = NULL,
    ffx_timeout_at_ms = NULL,
    worker_instance_id = NULL,
    lease_epoch = a.lease_epoch + 1
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index
) AS i
WHERE
    a.partition_key = ANY (ARRAY[i.partition_key])
    AND a.execution_id = i.execution_id
    AND a.attempt_index = i.attempt_index;
