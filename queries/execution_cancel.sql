-- name: EndCancelled :many
-- EndCancelled ends executions as cancelled, and settles their current attempts: an attempt_index below 0 means that
-- there is none to settle, and a raised_epoch of 0 that only its outcome is cleared. A raised epoch is given to both
-- rows, so that the holder of the attempt is refused from now on. Returns what was ended: a row that is terminal
-- already is left alone.
--
-- Used by: engine.CancelExecution, engine.CancelExecutions.
-- Locks: L1 held; L2 held; L7 new.
WITH input AS (
    -- The executions to end, and with them which attempts, and how.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@pointers::integer[]) AS pointer,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@attempt_outcomes::text[]) AS attempt_outcome,
        unnest(@raised_epochs::bigint[]) AS raised_epoch,
        unnest(@lease_ids::text[]) AS lease_id,
        unnest(@worker_instance_ids::text[]) AS worker_instance_id,
        unnest(@revoked_bys::text[]) AS revoked_by,
        unnest(@reasons::text[]) AS reason,
        unnest(@sources::text[]) AS source
    LIMIT cardinality(@execution_ids::uuid[])
),
ended AS (
    -- Their rows, ended.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'cancelled',
        ownership_state = 'unowned',
        eligibility_state = 'not_applicable',
        public_state = 'cancelled',
        attempt_state = 'cancelled',
        blocking_reason = NULL,
        attempt_index = i.pointer,
        terminal_at_ms = coalesce(e.terminal_at_ms, @now_ms::bigint),
        cancellation_reason = coalesce(e.cancellation_reason, nullif(i.reason, '')),
        cancelled_by = coalesce(e.cancelled_by, i.source),
        ffx_execution_deadline_ms = -abs(e.ffx_execution_deadline_ms),
        ffx_delay_until_ms = NULL,
        ffx_gate_id = NULL,
        ffx_admitted = NULL,
        ffx_lease_epoch = CASE WHEN i.raised_epoch > 0 THEN i.raised_epoch ELSE e.ffx_lease_epoch END,
        ffx_last_mutation_at_ms = @now_ms::bigint,
        -- What another program noted of a suspension, which is discarded.
        raw_fields = CASE
            WHEN e.raw_fields ?| ARRAY['current_waitpoint_id', 'current_suspension_id']
                THEN e.raw_fields - ARRAY['current_waitpoint_id', 'current_suspension_id']
            ELSE e.raw_fields
        END
    FROM input AS i
    WHERE
        e.partition_key = i.partition_key
        AND e.execution_id = i.execution_id
        AND e.lifecycle_phase NOT IN ('terminal', 'cancelled')
    RETURNING
        e.partition_key,
        e.execution_id,
        e.flow_id,
        (e.ffx_quota_policy_id IS NOT NULL) AS has_quota,
        i.attempt_index,
        i.attempt_outcome,
        i.raised_epoch,
        i.lease_id,
        i.worker_instance_id,
        i.revoked_by,
        e.ffx_namespace,
        e.ffx_instance_tag
),
ended_attempts AS (
    -- Their attempts, ended, or without the outcome of an earlier lease.
    UPDATE ff_attempt AS a
    SET
        outcome = nullif(d.attempt_outcome, ''),
        terminal_at_ms = CASE WHEN d.attempt_outcome = '' THEN a.terminal_at_ms ELSE @now_ms::bigint END,
        worker_instance_id = CASE WHEN d.raised_epoch = 0 THEN a.worker_instance_id END,
        lease_expires_at_ms = CASE WHEN d.raised_epoch = 0 THEN a.lease_expires_at_ms END,
        ffx_timeout_at_ms = CASE WHEN d.raised_epoch = 0 THEN a.ffx_timeout_at_ms END,
        lease_epoch = CASE WHEN d.raised_epoch = 0 THEN a.lease_epoch ELSE d.raised_epoch END
    FROM ended AS d
    WHERE
        a.partition_key = d.partition_key
        AND a.execution_id = d.execution_id
        AND a.attempt_index = d.attempt_index
),
lease_events AS (
    -- The lease events.
    INSERT INTO ff_lease_event (
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
        d.execution_id::text,
        nullif(d.lease_id, ''),
        'revoked',
        @now_ms::bigint,
        d.partition_key,
        d.ffx_namespace,
        d.ffx_instance_tag,
        nullif(d.worker_instance_id, ''),
        d.revoked_by
    FROM ended AS d
    WHERE d.revoked_by <> ''
)
SELECT
    d.partition_key,
    d.execution_id,
    d.flow_id,
    d.has_quota::boolean AS has_quota
FROM ended AS d;
