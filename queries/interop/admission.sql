-- name: LockQuotaGate :exec
-- LockQuotaGate locks the row of a quota policy at the gate, creating a missing row. Nothing is locked if the policy
-- does not exist.
--
-- Used by: interop.CheckAdmission, interop.SetQuotaPolicy, interop.DeleteQuotaPolicy.
-- Locks: gates waits (the INSERT: the row as FOR NO KEY UPDATE does).
INSERT INTO ffx_gate AS g (partition_key, gate_id, namespace, key, used_at_ms)
SELECT
    @partition_key::smallint,
    @gate_id::uuid,
    '',
    '',
    ffx_now_ms(sqlc.narg(now_ms))
FROM ff_quota_policy AS q
WHERE
    q.partition_key = @quota_partition::smallint
    AND q.quota_policy_id = @quota_policy_id::text
ON CONFLICT ON CONSTRAINT ffx_gate_pkey DO UPDATE
SET used_at_ms = g.used_at_ms
WHERE false;

-- name: GetCallerAdmission :one
-- GetCallerAdmission returns the limits of a quota policy, the bounds at the gate, the state of an execution, and when
-- a call last admitted the execution here, 0 if no call did or the admission was released. No row: the policy does not
-- exist. named: the execution names the policy.
--
-- Used by: interop.CheckAdmission.
-- Locks: none. Reads the gate under the lock of LockQuotaGate.
SELECT
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms,
    q.active_concurrency_cap AS concurrent,
    q.max_requests_per_window AS starts,
    q.requests_per_window_seconds AS window_seconds,
    coalesce(g.held, 0)::bigint AS held,
    coalesce(g.started, 0)::bigint AS started,
    (e.execution_id IS NOT NULL)::boolean AS found,
    coalesce(e.lifecycle_phase IN ('terminal', 'cancelled'), false)::boolean AS ended,
    coalesce(@gate_id::uuid = ANY (e.ffx_limit_ids), false)::boolean AS named,
    coalesce(u.admitted_at_ms, 0)::bigint AS admitted_at_ms
FROM ff_quota_policy AS q
LEFT JOIN LATERAL (
    SELECT
        t.held,
        t.started
    FROM ffx_gate AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.gate_id = @gate_id::uuid
    LIMIT 1
) AS g ON true
LEFT JOIN LATERAL (
    SELECT
        t.execution_id,
        t.lifecycle_phase,
        t.ffx_limit_ids
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = @execution_partition_key::smallint
        AND t.execution_id = @execution_id::uuid
    LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT t.admitted_at_ms
    FROM ffx_gate_use AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.gate_id = @gate_id::uuid
        AND t.execution_id = @execution_id::uuid
        AND t.held
    ORDER BY t.admitted_at_ms DESC
    LIMIT 1
) AS u ON true
WHERE
    q.partition_key = @quota_partition::smallint
    AND q.quota_policy_id = @quota_policy_id::text;

-- name: LockGate :exec
-- LockGate locks the row of a quota policy at the gate, if any.
--
-- Used by: interop.ReleaseAdmission.
-- Locks: gates waits (the row FOR NO KEY UPDATE).
SELECT
FROM ffx_gate AS g
WHERE
    g.partition_key = @partition_key::smallint
    AND g.gate_id = @gate_id::uuid
FOR NO KEY UPDATE;

-- name: ReleaseCallerAdmission :execrows
-- ReleaseCallerAdmission gives back the place of an execution a call admitted at a locked quota policy. The start goes
-- on counting. No row: there is no such admission.
--
-- Used by: interop.ReleaseAdmission.
-- Locks: gates held (UPDATE of admissions).
UPDATE ffx_gate_use AS u
SET held = false
WHERE
    u.partition_key = @partition_key::smallint
    AND u.gate_id = @gate_id::uuid
    AND u.execution_id = @execution_id::uuid
    AND u.by_caller
    AND u.held;
