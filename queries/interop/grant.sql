-- name: ScanEligible :many
-- ScanEligible pages through the claimable executions of a lane in claim order, after a place in this order, with their
-- budgets and quotas. If given, capabilities, kinds and a partition restrict the result to executions the capabilities
-- cover, of the given kinds, in the given partition.
--
-- Used by: interop.EligibleExecutions, interop.ClaimForWorker.
-- Locks: none. Spans partitions.
SELECT
    r.rank,
    e.created_at_ms,
    e.partition_key,
    e.execution_id,
    -- include grant_attached
    coalesce(e.ffx_admitted, false)::boolean AS admitted
FROM (
    -- Sorted first, then looked up one by one, even by a plan made while both tables were empty.
    SELECT
        q.lane_id,
        q.rank,
        q.created_at_ms,
        q.execution_id,
        q.partition_key
    FROM ffx_ready AS q
    WHERE
        q.lane_id = @lane_id
        AND (q.rank, q.created_at_ms, q.execution_id, q.partition_key)
            > (@after_rank::bigint, @after_created_at_ms::bigint, @after_execution_id::uuid, @after_partition_key::smallint)
        AND (q.required_capabilities <@ sqlc.narg(capabilities)::text[]) IS NOT FALSE
        AND (q.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE
        AND (q.partition_key = sqlc.narg(only_partition)::smallint) IS NOT FALSE
    ORDER BY
        q.rank,
        q.created_at_ms,
        q.execution_id,
        q.partition_key
) AS r
CROSS JOIN LATERAL (
    SELECT
        t.created_at_ms,
        t.partition_key,
        t.execution_id,
        t.policy,
        t.raw_fields,
        t.ffx_budget_ids,
        t.ffx_limit_ids,
        t.ffx_admitted
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = r.partition_key
        AND t.execution_id = r.execution_id
        AND t.lane_id IS NOT DISTINCT FROM r.lane_id
        AND - t.priority::bigint = r.rank
        AND t.created_at_ms = r.created_at_ms
        AND t.lifecycle_phase IS NOT DISTINCT FROM 'runnable'
        AND t.eligibility_state = 'eligible_now'
        AND (t.required_capabilities <@ sqlc.narg(capabilities)::text[]) IS NOT FALSE
    LIMIT 1
) AS e
LIMIT @page_size::integer;

-- name: TakeEligible :many
-- TakeEligible locks the first given execution still claimable on the lane and not locked elsewhere, and returns the
-- position in the input. No row: there is none.
--
-- Used by: interop.ClaimForWorker.
-- Locks: L1 skips (the execution's row FOR NO KEY UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@ords::integer[]) AS ord
)
SELECT i.ord::integer AS ord
FROM input AS i
CROSS JOIN LATERAL (
    SELECT t.execution_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.lane_id IS NOT DISTINCT FROM @lane_id
        AND t.lifecycle_phase = 'runnable'
        AND t.eligibility_state = 'eligible_now'
    FOR NO KEY UPDATE SKIP LOCKED
) AS e
LIMIT 1;

-- name: ReadGrantFacts :one
-- ReadGrantFacts reads the facts a grant, or a lease by one, needs about a locked execution and the current attempt,
-- beside the facts every operation on a locked execution reads.
--
-- Used by: interop.IssueClaimGrant, interop.ClaimForWorker, interop.ClaimExecution, interop.IssueGrantAndClaim,
-- interop.ClaimFromResumeGrant, interop.IssueReclaimGrant, interop.ReclaimExecution.
-- Locks: none. The execution and the attempt are locked by the caller.
SELECT
    e.payload,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    (e.raw_fields -> 'tags')::jsonb AS tags,
    coalesce(e.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(ffx_attempt_timeout_at(e.policy, 0), 0)::bigint AS attempt_timeout_ms,
    -- For a loss already counted.
    ffx_lost_too_often(greatest(e.lease_reclaim_count, 0) - 1, e.policy, @default_cap::integer)::boolean AS had_lost_too_often,
    -- include grant_attached
    a.ffx_attempt_type,
    a.ffx_attempt_id,
    coalesce(
        (
            SELECT p.subject
            FROM ffx_pause AS p
            WHERE
                p.subject = 'lane'
                AND p.name = e.lane_id
                AND (p.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
        ),
        (
            SELECT p.subject
            FROM ffx_pause AS p
            WHERE
                p.subject = 'worker'
                AND p.name = @worker_instance_id::text
        ),
        ''
    )::text AS halt
FROM ff_exec_core AS e
LEFT JOIN ff_attempt AS a
    ON a.partition_key = e.partition_key
    AND a.execution_id = e.execution_id
    AND a.attempt_index = @current_index::integer
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: ListGrants :many
-- ListGrants reads the grants of one kind an execution has, the newest first.
--
-- Used by: interop.IssueClaimGrant, interop.ClaimForWorker, interop.ClaimExecution, interop.ClaimFromResumeGrant,
-- interop.ReclaimExecution.
-- Locks: none. Issuing or deleting a grant needs the lock of the execution, which the caller holds.
SELECT
    g.grant_id,
    g.worker_id,
    g.worker_instance_id,
    g.expires_at_ms
FROM ff_claim_grant AS g
WHERE
    g.partition_key = @partition_key
    AND g.execution_id = @execution_id
    AND g.kind = @kind
ORDER BY
    g.issued_at_ms DESC,
    g.expires_at_ms DESC,
    g.grant_id
LIMIT 1000;

-- name: GetGrant :one
-- GetGrant reads the worker a grant of an execution was issued to. No row: the grant does not exist, or no longer does.
--
-- Used by: interop.VerifyGrant, interop.ClaimExecution, interop.ClaimFromResumeGrant,
-- interop.ReclaimExecution.
-- Locks: none.
SELECT
    g.worker_id,
    g.worker_instance_id
FROM ff_claim_grant AS g
WHERE
    g.partition_key = @partition_key
    AND g.execution_id = @execution_id
    AND g.grant_id = @grant_id
    AND g.kind = @kind;

-- name: DeleteGrants :exec
-- DeleteGrants deletes the grants of some kinds an execution has.
--
-- Used by: interop.IssueClaimGrant, interop.ClaimForWorker, interop.ClaimExecution,
-- interop.IssueGrantAndClaim, interop.ClaimFromResumeGrant, interop.ReclaimExecution.
-- Locks: L5 waits (DELETE). The execution is locked by the caller.
DELETE FROM ff_claim_grant AS g
WHERE
    g.partition_key = @partition_key
    AND g.execution_id = @execution_id
    AND g.kind = ANY (@kinds::text[]);

-- name: InsertGrant :exec
-- InsertGrant writes a grant, overwriting one with the same key, which another program may have issued in the same
-- millisecond.
--
-- Used by: interop.IssueClaimGrant, interop.ClaimForWorker, interop.IssueReclaimGrant.
-- Locks: L5 waits (for a row of the same key). The execution is locked by the caller.
INSERT INTO ff_claim_grant (
    partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, lane_id,
    capability_hash, worker_capabilities, route_snapshot_json, admission_summary, grant_ttl_ms,
    issued_at_ms, expires_at_ms
)
VALUES (
    @partition_key,
    @grant_id,
    @execution_id,
    @kind,
    @worker_id,
    @worker_instance_id,
    @lane_id::text,
    nullif(@capability_hash::text, ''),
    to_jsonb(@worker_capabilities::text[]),
    nullif(@route_snapshot::text, ''),
    nullif(@admission_summary::text, ''),
    @grant_ttl_ms,
    @issued_at_ms,
    @expires_at_ms
)
ON CONFLICT (partition_key, grant_id) DO UPDATE SET
    lane_id = excluded.lane_id,
    capability_hash = excluded.capability_hash,
    worker_capabilities = excluded.worker_capabilities,
    route_snapshot_json = excluded.route_snapshot_json,
    admission_summary = excluded.admission_summary,
    grant_ttl_ms = excluded.grant_ttl_ms,
    issued_at_ms = excluded.issued_at_ms;

-- name: HoldForGrant :exec
-- HoldForGrant takes a claimable execution out of the lane, for the worker a grant was issued to.
--
-- Used by: interop.IssueClaimGrant, interop.ClaimForWorker.
-- Locks: L1 held; queue held, by the execution's row.
UPDATE ff_exec_core AS e
SET
    lifecycle_phase = 'runnable',
    ownership_state = 'unowned',
    eligibility_state = 'pending_claim',
    public_state = CASE e.public_state WHEN 'resumable' THEN 'resumable' ELSE 'waiting' END,
    blocking_reason = 'waiting_for_worker',
    ffx_gate_id = NULL,
    ffx_last_mutation_at_ms = @now_ms::bigint
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id
    AND e.lifecycle_phase = 'runnable'
    AND e.eligibility_state = 'eligible_now';

-- name: EndReclaimedAttempt :exec
-- EndReclaimedAttempt ends an attempt whose worker fell silent and which another attempt follows, and raises the epoch,
-- so the former holder is refused.
--
-- Used by: interop.ReclaimExecution.
-- Locks: L2 held.
UPDATE ff_attempt AS a
SET
    outcome = 'interrupted_reclaimed',
    -- In the form of ReleaseExpiredLeases.
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
                'how', 'reclaimed'
            )
        )
    END,
    terminal_at_ms = coalesce(a.terminal_at_ms, @now_ms::bigint),
    lease_expires_at_ms = NULL,
    ffx_timeout_at_ms = NULL,
    worker_id = NULL,
    worker_instance_id = NULL,
    lease_epoch = a.lease_epoch + 1
WHERE
    a.partition_key = @partition_key
    AND a.execution_id = @execution_id
    AND a.attempt_index = @attempt_index;
