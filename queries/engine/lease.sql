-- name: RenewLeases :many
-- RenewLeases extends live leases for the holders of their epochs; ord (from 0) is the input position. No row for an
-- item: the fence failed, and ReadLeases returns the reason; or another transaction holds the attempt or has just
-- changed the row.
--
-- A renewal decides from the attempt row, which the statement locks and writes, and only reads the execution row. Every
-- loss of a lease changes the attempt row. The fast path serves canonical rows; with judged, all leases ReadLeases has
-- shown to be current are renewed, wherever the execution's pointer is.
--
-- Used by: engine.RenewLease, engine.RenewLeases.
-- Locks: L2 skips (attempt rows FOR NO KEY UPDATE, then the UPDATE); L7 new.
WITH clock AS MATERIALIZED (
    -- The time of the renewal, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    -- The leases to renew, with their place in the input.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@lease_epochs::bigint[]) AS lease_epoch,
        unnest(@ttls_ms::bigint[]) AS ttl_ms,
        -- Not by generate_subscripts: the planner expects a thousand rows from the function and ten from an array, and
        -- for a thousand the whole table would be read instead of looking up each row.
        unnest(@ords::integer[]) AS ord
    LIMIT cardinality(@execution_ids::uuid[])
),
renewed AS (
    -- The attempts whose fence held, with their new expiry.
    UPDATE ff_attempt AS a
    SET
        lease_expires_at_ms = greatest(a.lease_expires_at_ms, (SELECT now_ms FROM clock) + i.ttl_ms)
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            c.lifecycle_phase,
            c.ownership_state,
            c.attempt_index,
            c.ffx_lease_epoch,
            c.ffx_namespace,
            c.ffx_instance_tag
        FROM ff_exec_core AS c
        WHERE
            c.partition_key = i.partition_key
            AND c.execution_id = i.execution_id
        LIMIT 1
    ) AS e
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS row_id
        FROM ff_attempt AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.attempt_index = i.attempt_index
            -- The fence.
            AND t.lease_epoch = i.lease_epoch
            AND t.lease_expires_at_ms > (SELECT now_ms FROM clock)
            AND e.lifecycle_phase = 'active'
            AND (@judged::boolean OR e.ownership_state = 'leased' AND e.attempt_index = i.attempt_index) IS TRUE
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ) AS t
    WHERE
        -- A row changed between snapshot and lock is not found by ctid and stays unchanged.
        a.ctid = t.row_id
        AND a.partition_key = i.partition_key
        AND a.execution_id = i.execution_id
        AND a.attempt_index = i.attempt_index
    RETURNING
        i.ord,
        a.partition_key,
        a.execution_id,
        -- Another program keeps the id of a lease in raw_fields; the library uses the column.
        CASE
            WHEN a.lease_epoch = e.ffx_lease_epoch THEN a.ffx_lease_id::text
            ELSE a.raw_fields ->> 'lease_id'
        END AS lease_id,
        a.worker_instance_id,
        a.lease_expires_at_ms,
        e.ffx_namespace,
        e.ffx_instance_tag
),
renewed_events AS (
    -- The lease events.
    INSERT INTO ff_lease_event (
        execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, instance_tag,
        ffx_worker_instance_id
    )
    SELECT
        r.execution_id::text,
        r.lease_id,
        'renewed',
        (SELECT now_ms FROM clock),
        r.partition_key,
        r.ffx_namespace,
        r.ffx_instance_tag,
        r.worker_instance_id
    FROM renewed AS r
    WHERE coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all') = 'all'
)
SELECT
    r.ord::integer AS ord,
    r.lease_expires_at_ms::bigint AS lease_expires_at_ms
FROM renewed AS r;

-- name: ReadLeases :many
-- ReadLeases returns, for each item, the facts for checking a fence; ord (from 0) is the input position. No row: the
-- execution does not exist. A NULL attempt_epoch: the attempt does not exist.
--
-- Used by: engine.RenewLease, engine.RenewLeases, engine.CompleteExecution, engine.CompleteExecutions,
-- engine.Claimer.CompleteAndClaim, engine.FailExecution, engine.FailExecutions, engine.ReleaseLeases,
-- engine.ReportProgress, engine.DelayExecution, engine.Suspend, engine.RecordStep, engine.Call, engine.CreateWaitpoint,
-- engine.CloseWaitpoint, engine.TakeSignal, engine.DelayExecutions, engine.SuspendEach, engine.RecordSteps,
-- engine.WaitForChildren, engine.WaitForChildrenEach, stream.Append, stream.AppendBatch,
-- stream.AppendEach.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@ords::integer[]) AS ord
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    i.ord::integer AS ord,
    e.lifecycle_phase,
    e.ownership_state,
    e.public_state,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    a.lease_epoch AS attempt_epoch,
    coalesce(a.outcome, '')::text AS attempt_outcome,
    a.lease_expires_at_ms,
    a.terminal_at_ms AS attempt_terminal_at_ms,
    a.ffx_delay_until_ms,
    coalesce(a.worker_instance_id, '')::text AS worker_instance_id,
    -- Another program keeps the id of a lease in raw_fields; the library uses the column.
    coalesce(CASE
        WHEN a.lease_epoch = e.ffx_lease_epoch THEN a.ffx_lease_id::text
        ELSE a.raw_fields ->> 'lease_id'
    END, '')::text AS lease_id,
    coalesce(cur.attempt_index, -1)::integer AS current_index,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.lifecycle_phase,
        t.ownership_state,
        t.public_state,
        t.cancellation_reason,
        t.raw_fields,
        t.attempt_index,
        t.ffx_lease_epoch
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
LEFT JOIN ff_attempt AS a
    ON a.partition_key = ANY (ARRAY[i.partition_key])
    AND a.execution_id = i.execution_id
    AND a.attempt_index = i.attempt_index
LEFT JOIN LATERAL (
    SELECT t.outcome
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index = e.attempt_index
    LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT
        c.attempt_index,
        c.outcome
    FROM ff_attempt AS c
    WHERE
        c.partition_key = i.partition_key
        AND c.execution_id = i.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true;

-- name: LockExecutions :many
-- LockExecutions locks executions; ord (from 0) is the input position. A missing execution has no row.
--
-- Used by: engine.CompleteExecution, engine.FailExecution, engine.ReportProgress, engine.CancelExecution,
-- engine.DelayExecution, engine.Suspend, engine.CreateWaitpoint, engine.CloseWaitpoint, engine.WaitForChildren,
-- operator.Prioritize, operator.Move, operator.Delay, operator.Revoke, operator.Replay,
-- interop.IssueClaimGrant, interop.ClaimExecution, interop.IssueGrantAndClaim, interop.ClaimFromResumeGrant,
-- interop.IssueReclaimGrant, interop.ReclaimExecution, operator.Block, operator.Unblock, engine.Resume,
-- operator.ReissueToken, engine.CreateFlow, engine.GrowFlow, engine.AddMembers, engine.StageEdges, engine.ApplyEdges,
-- engine.SetGroupPolicy, engine.SignalEach, engine.RecordStep, engine.Call, engine.TakeSignal, operator.ReplayWhere,
-- stream.Append, stream.AppendBatch.
-- Locks: L1 waits (execution rows FOR NO KEY UPDATE in array order). The caller sorts by (partition_key,
-- execution_id).
-- include locked_executions: lock = FOR NO KEY UPDATE

-- name: TakeExecutions :many
-- TakeExecutions is LockExecutions without waiting: an execution another transaction holds has no row.
--
-- Used by: engine.CompleteExecutions, engine.Claimer.CompleteAndClaim, engine.FailExecutions, engine.ReleaseLeases,
-- engine.CancelExecutions, operator.CancelWhere, operator.DeleteWhere, operator.MoveWhere, operator.PrioritizeWhere,
-- operator.ReplayWhere, engine.DelayExecutions, engine.SuspendEach, engine.RecordSteps, engine.WaitForChildrenEach,
-- interop.ClaimForWorker, upkeep.ExpireGrants, upkeep.RepairQueue, upkeep.CancelSiblings, upkeep.CancelFlows,
-- upkeep.ExpireWaits, upkeep.ResumeCallers, stream.AppendEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE).
-- include locked_executions: lock = FOR NO KEY UPDATE SKIP LOCKED

-- name: LockAttempts :many
-- LockAttempts locks one attempt of each locked execution; ord (from 0) is the input position.
-- A missing attempt has no row.
--
-- Used by: engine.CompleteExecution, engine.FailExecution, engine.ReportProgress, engine.DelayExecution,
-- engine.Suspend, engine.RecordStep, engine.Call, engine.CreateWaitpoint, engine.CloseWaitpoint,
-- engine.TakeSignal, engine.WaitForChildren, stream.Append, stream.AppendBatch.
-- Locks: L2 waits (attempt rows FOR UPDATE in array order). The caller sorts by (partition_key, execution_id,
-- attempt_index).
-- include locked_attempts: lock = FOR UPDATE

-- name: TakeAttempts :many
-- TakeAttempts is LockAttempts without waiting: an attempt another transaction holds has no row.
--
-- Used by: engine.CompleteExecutions, engine.Claimer.CompleteAndClaim, engine.FailExecutions, engine.ReleaseLeases,
-- engine.DelayExecutions, engine.SuspendEach, engine.RecordSteps, engine.WaitForChildrenEach,
-- stream.AppendEach.
-- Locks: L2 skips (attempt rows FOR UPDATE).
-- include locked_attempts: lock = FOR UPDATE SKIP LOCKED

-- name: UpdateProgress :exec
-- UpdateProgress stores the progress a worker reports for a running attempt; a NULL argument leaves the stored value.
--
-- Used by: engine.ReportProgress.
-- Locks: L1 held.
UPDATE ff_exec_core AS e
SET
    raw_fields = e.raw_fields
        || CASE
            WHEN sqlc.narg(percent)::integer IS NULL THEN '{}'::jsonb
            ELSE jsonb_build_object('progress_pct', sqlc.narg(percent)::integer)
        END
        || CASE
            WHEN sqlc.narg(message)::text IS NULL THEN '{}'::jsonb
            ELSE jsonb_build_object('progress_message', sqlc.narg(message)::text)
        END
        || jsonb_build_object(
            'progress_updated_at', (@now_ms::bigint)::text,
            'last_mutation_at', (@now_ms::bigint)::text
        ),
    ffx_last_mutation_at_ms = @now_ms::bigint
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;
