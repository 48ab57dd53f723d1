-- name: TakeHalfDone :many
-- TakeHalfDone locks the given executions no other transaction holds. The caller reads afterwards which facts are
-- missing.
--
-- Used by: schema.Adopt.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    (e.lifecycle_phase IN ('terminal', 'cancelled'))::boolean AS ended,
    (
        (e.lifecycle_phase = 'cancelled' OR e.public_state = 'cancelled')
        AND coalesce(e.ffx_last_mutation_at_ms, 0) < e.terminal_at_ms
    )::boolean AS unreported,
    coalesce(e.terminal_at_ms, 0)::bigint AS terminal_at_ms,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        t.lifecycle_phase,
        t.public_state,
        t.terminal_at_ms,
        t.ffx_last_mutation_at_ms,
        t.ffx_lease_epoch,
        t.ffx_quota_policy_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS e;

-- name: HealEnded :exec
-- HealEnded takes the leases of executions another program ended, and settles their attempts: from now on their holders
-- are refused. A negative attempt_index: there is no attempt to settle.
--
-- Passages: set_ended, lease_events.
-- Used by: schema.Adopt.
-- Locks: L1 held; L2 held; L7 new.
WITH input AS (
    -- The executions and their current attempts.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@raised_epochs::bigint[]) AS raised_epoch,
        nullif(unnest(@lease_ids::text[]), '') AS lease_id,
        nullif(unnest(@worker_instance_ids::text[]), '') AS worker_instance_id,
        unnest(@leased::boolean[]) AS leased,
        unnest(@cancelled::boolean[]) AS cancelled
),
healed AS (
    -- Their rows, without an owner.
    UPDATE ff_exec_core AS e
    SET
        attempt_state = CASE
            WHEN e.attempt_state IN ('cancelled', 'attempt_terminal', 'none') THEN e.attempt_state
            WHEN e.lifecycle_phase = 'cancelled' THEN 'cancelled'
            ELSE 'attempt_terminal'
        END,
        ffx_lease_epoch = greatest(e.ffx_lease_epoch, i.raised_epoch),
        -- The columns every end sets in an execution e.
        ownership_state = 'unowned',
        eligibility_state = 'not_applicable',
        blocking_reason = NULL,
        ffx_execution_deadline_ms = -abs(e.ffx_execution_deadline_ms),
        ffx_gate_id = NULL,
        ffx_admitted = NULL,
        ffx_last_mutation_at_ms = @now_ms::bigint
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        i.attempt_index,
        i.raised_epoch,
        i.lease_id,
        i.worker_instance_id,
        i.leased,
        i.cancelled,
        e.ffx_namespace,
        e.ffx_instance_tag
),
healed_attempts AS (
    -- Their attempts, without a lease.
    UPDATE ff_attempt AS a
    SET
        lease_expires_at_ms = NULL,
        ffx_timeout_at_ms = NULL,
        worker_instance_id = NULL,
        outcome = CASE WHEN h.cancelled THEN CASE WHEN h.leased THEN 'cancelled' END ELSE a.outcome END,
        terminal_at_ms = CASE WHEN h.cancelled AND h.leased THEN @now_ms::bigint ELSE a.terminal_at_ms END,
        lease_epoch = h.raised_epoch
    FROM healed AS h
    WHERE
        a.partition_key = ANY (ARRAY[h.partition_key])
        AND a.execution_id = h.execution_id
        AND a.attempt_index = h.attempt_index
        AND h.raised_epoch > 0
)
INSERT INTO ff_lease_event (
    -- Takes healed (partition_key, execution_id, lease_id, worker_instance_id, ffx_namespace, ffx_instance_tag).
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
    'reconciler'
FROM healed AS r
WHERE
    -- Without columns of r it is asked once, and a value that is not kept costs no scan.
    coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
    IN ('all', CASE WHEN 'revoked' = 'expired' OR 'reconciler' IN ('operator', 'reconciler') THEN 'lost' END)
    AND r.leased;

-- name: RecordEndedStates :execrows
-- RecordEndedStates stores the public state of locked, ended executions, as derived by the view. Another program left an
-- earlier state there.
--
-- Used by: schema.Adopt.
-- Locks: L1 held.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
UPDATE ff_exec_core AS e
SET
    public_state = v.state,
    ffx_last_mutation_at_ms = @now_ms::bigint
FROM input AS i
CROSS JOIN LATERAL (
    SELECT x.state
    FROM ffx_execution AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.execution_id = i.execution_id
    OFFSET 0
) AS v
WHERE
    e.partition_key = ANY (ARRAY[i.partition_key])
    AND e.execution_id = i.execution_id
    AND e.lifecycle_phase IN ('terminal', 'cancelled')
    AND v.state IN ('completed', 'failed', 'cancelled', 'expired', 'skipped');

-- name: RepointExecutions :execrows
-- RepointExecutions corrects the pointers of locked executions. An execution waiting for a new attempt points to the
-- one after the newest; if an interrupted attempt goes on, the pointer names this attempt. The attempts are changed to
-- match.
--
-- Used by: schema.Adopt.
-- Locks: L1 held; L2 waits (the interrupted attempt, or the failed one, under the lock of the execution).
WITH input AS (
    -- The executions.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
),
current AS (
    -- The newest attempt up to the pointer, and the newest of all.
    SELECT
        e.partition_key,
        e.execution_id,
        e.attempt_state,
        e.attempt_index AS pointer,
        (
            SELECT max(t.attempt_index)
            FROM ff_attempt AS t
            WHERE
                t.partition_key = e.partition_key
                AND t.execution_id = e.execution_id
                AND t.attempt_index <= e.attempt_index
        ) AS reached,
        (
            SELECT max(t.attempt_index)
            FROM ff_attempt AS t
            WHERE
                t.partition_key = e.partition_key
                AND t.execution_id = e.execution_id
        ) AS newest
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            t.attempt_state,
            t.attempt_index
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.attempt_state IN ('attempt_interrupted', 'pending_retry_attempt')
        OFFSET 0
    ) AS e
),
attempts AS (
    -- The attempts, ended or open again.
    UPDATE ff_attempt AS a
    SET
        terminal_at_ms = CASE WHEN c.attempt_state = 'attempt_interrupted' THEN NULL ELSE a.terminal_at_ms END,
        outcome = CASE
            WHEN c.attempt_state = 'pending_retry_attempt' AND a.outcome = 'failure' THEN 'retry'
            ELSE a.outcome
        END
    FROM current AS c
    WHERE
        a.partition_key = ANY (ARRAY[c.partition_key])
        AND a.execution_id = c.execution_id
        AND a.attempt_index = c.reached
)
UPDATE ff_exec_core AS e
SET
    attempt_index = CASE
        WHEN c.attempt_state = 'attempt_interrupted' THEN coalesce(c.reached, e.attempt_index)
        ELSE c.newest + 1
    END,
    attempt_state = CASE
        WHEN c.attempt_state = 'attempt_interrupted' AND c.reached IS NULL THEN 'pending_first_attempt'
        ELSE e.attempt_state
    END,
    ffx_last_mutation_at_ms = @now_ms::bigint
FROM current AS c
WHERE
    e.partition_key = ANY (ARRAY[c.partition_key])
    AND e.execution_id = c.execution_id
    AND (
        c.attempt_state = 'attempt_interrupted' AND c.reached IS DISTINCT FROM c.pointer
        OR c.attempt_state = 'pending_retry_attempt' AND c.reached = c.pointer
    );
