-- name: RevokeLease :one
-- RevokeLease takes the lease of a running attempt away, under a raised epoch: the next claim resumes the same attempt.
-- Returns the lane with work to claim now. The caller has locked and checked both rows.
--
-- Passages: set_released, set_attempt_released, lease_events.
-- Used by: operator.Revoke.
-- Locks: L1 held; L2 held; L7 new.
WITH released AS (
    -- The execution, claimable again.
    UPDATE ff_exec_core AS e
    SET
        raw_fields = e.raw_fields || jsonb_build_object(
            'lease_revoke_reason', @reason::text,
            'last_mutation_at', (@now_ms::bigint)::text
        ),
        -- Makes an execution claimable again after the loss of a lease: the attempt goes on, under a raised epoch.
        lifecycle_phase = 'runnable',
        ownership_state = 'unowned',
        eligibility_state = 'eligible_now',
        public_state = 'waiting',
        attempt_state = 'attempt_interrupted',
        blocking_reason = 'waiting_for_worker',
        attempt_index = @attempt_index::integer,
        ffx_gate_id = NULL,
        ffx_lease_epoch = @raised_epoch::bigint,
        ffx_last_mutation_at_ms = @now_ms::bigint
    WHERE
        e.partition_key = @partition_key
        AND e.execution_id = @execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        e.attempt_index,
        e.lane_id,
        nullif(@lease_id::text, '') AS lease_id,
        nullif(@worker_instance_id::text, '') AS worker_instance_id,
        e.ffx_namespace,
        e.ffx_instance_tag
),
interrupted AS (
    -- The attempt, fenced and without a lease.
    UPDATE ff_attempt AS a
    SET
        outcome = 'interrupted',
        ffx_delay_until_ms = NULL,
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
                    'how', 'revoked'
                )
            )
        END,
        lease_expires_at_ms = NULL,
        ffx_timeout_at_ms = NULL,
        worker_id = NULL,
        worker_instance_id = NULL,
        terminal_at_ms = NULL,
        lease_epoch = @raised_epoch::bigint
    FROM released AS r
    WHERE
        a.partition_key = ANY (ARRAY[r.partition_key])
        AND a.execution_id = r.execution_id
        AND a.attempt_index = r.attempt_index
),
lease_events AS (
    -- The lease event.
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
        'revoked',
        @now_ms::bigint,
        r.partition_key,
        r.ffx_namespace,
        r.ffx_instance_tag,
        r.worker_instance_id,
        'operator'
    FROM released AS r
    WHERE
        -- Without columns of r it is asked once, and a value that is not kept costs no scan.
        coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
        IN ('all', CASE WHEN 'revoked' = 'expired' OR 'operator' IN ('operator', 'reconciler') THEN 'lost' END)
)
SELECT r.lane_id
FROM released AS r;

-- name: ListExpiredLeases :many
-- ListExpiredLeases returns the leases expired by as_of and not yet taken away by a job, after a position, by expiry.
-- Reads every lease timer due by then, and the attempts listed there.
--
-- Used by: operator.ExpiredLeases.
-- Locks: none. Spans partitions.
WITH timed AS (
    -- The attempts whose lease timers are due.
    SELECT
        unnest(w.partition_keys) AS partition_key,
        unnest(w.execution_ids) AS execution_id,
        unnest(w.attempt_indexes) AS attempt_index
    FROM ffx_lease_timer AS w
    WHERE w.due_at_ms <= coalesce(sqlc.narg(as_of_ms)::bigint, ffx_now_ms(sqlc.narg(now_ms)))
)
SELECT DISTINCT
    a.partition_key,
    a.execution_id,
    a.attempt_index,
    a.lease_epoch,
    a.lease_expires_at_ms::bigint AS lease_expires_at_ms,
    a.worker_instance_id::text AS worker_instance_id
FROM timed AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.attempt_index,
        t.lease_epoch,
        t.lease_expires_at_ms,
        t.worker_instance_id
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index = i.attempt_index
    LIMIT 1
) AS a
CROSS JOIN LATERAL (
    SELECT
        t.lifecycle_phase,
        t.attempt_index,
        t.ffx_namespace
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
CROSS JOIN LATERAL (
    -- The current attempt is the newest up to the pointer.
    SELECT t.attempt_index
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index <= e.attempt_index
    ORDER BY t.attempt_index DESC
    LIMIT 1
) AS cur
WHERE
    a.attempt_index = cur.attempt_index
    AND a.lease_expires_at_ms <= coalesce(sqlc.narg(as_of_ms)::bigint, ffx_now_ms(sqlc.narg(now_ms)))
    AND a.worker_instance_id IS NOT NULL
    AND e.lifecycle_phase = 'active'
    AND (sqlc.narg(namespace)::text IS NULL OR e.ffx_namespace = sqlc.narg(namespace)::text)
    AND (a.lease_expires_at_ms, a.execution_id) > (@after_ms::bigint, @after_execution_id::uuid)
ORDER BY
    5,
    2
LIMIT @page_size::integer;
