-- name: TakeClaimable :many
-- TakeClaimable locks up to max_items claimable executions of one lane from the head, in claim order: the first step of
-- the slow path. ClaimFromHead is the fast path.
--
-- Passages: claim_halted, claim_queue, claim_execution.
-- Used by: engine.Claim, engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order). Spans partitions.
WITH halted AS MATERIALIZED (
    -- Why the worker may not claim here: lane paused, or worker drained. One scan for both takes half the time of two.
    SELECT p.subject
    FROM ffx_pause AS p
    WHERE
        p.name = ANY (ARRAY[@lane_id::text, @worker_instance_id::text])
        AND p.name = CASE p.subject WHEN 'lane' THEN @lane_id::text ELSE @worker_instance_id::text END
        AND (p.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.attempt_index,
    e.attempt_state,
    e.priority,
    e.created_at_ms,
    e.ready_at_ms::bigint AS ready_at_ms,
    e.payload,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    (e.raw_fields -> 'tags')::jsonb AS tags,
    coalesce(e.ffx_retry_count, 0)::integer AS retry_count,
    e.ffx_trace,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    coalesce(ffx_attempt_timeout_at(e.policy, 0), 0)::bigint AS attempt_timeout_ms
FROM (
    -- Sorted first, so the limit stops the locking. Any plan, even for empty tables, looks executions up one by one.
    SELECT
        q.ctid::tid AS entry_id,
        q.lane_id,
        q.rank,
        q.created_at_ms,
        q.execution_id,
        q.partition_key
    FROM ffx_ready AS q
    WHERE
        q.lane_id = @lane_id
        AND q.required_capabilities <@ @capabilities::text[]
        AND (q.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE
    ORDER BY
        q.rank,
        q.created_at_ms,
        q.execution_id
) AS r
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        t.attempt_index,
        t.attempt_state,
        t.priority,
        t.created_at_ms,
        t.payload,
        t.policy,
        t.raw_fields,
        t.ffx_retry_count,
        t.ffx_lease_epoch,
        t.ffx_trace,
        coalesce(t.ffx_last_mutation_at_ms, t.created_at_ms) AS ready_at_ms
    -- The execution of an entry r, locked if claimable.
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = r.partition_key
        AND t.execution_id = r.execution_id
        AND t.lane_id IS NOT DISTINCT FROM r.lane_id
        AND - t.priority::bigint = r.rank
        AND t.created_at_ms = r.created_at_ms
        AND t.lifecycle_phase IS NOT DISTINCT FROM 'runnable'
        AND t.eligibility_state = 'eligible_now'
        AND t.required_capabilities <@ @capabilities::text[]
        -- Skips rows claimed since the snapshot, which would be locked all the same.
        AND (t.xmax = 0 OR ffx_claimable_now(t.partition_key, t.execution_id))
    FOR NO KEY UPDATE SKIP LOCKED
) AS e
WHERE NOT EXISTS (SELECT FROM halted)
LIMIT @max_items::integer;

-- name: TakeAttemptsOf :many
-- TakeAttemptsOf locks the attempt rows of the given executions and returns the facts the choice of an attempt index
-- needs. stored says how many attempts an execution has. An execution without attempts has one row with a negative
-- attempt_index. Fewer rows than stored: another transaction holds an attempt, and the execution cannot be claimed now.
--
-- Used by: engine.Claim, engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L2 skips (attempt rows FOR UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    i.execution_id::uuid AS execution_id,
    (
        SELECT count(*)
        FROM ff_attempt AS c
        WHERE
            c.partition_key = i.partition_key
            AND c.execution_id = i.execution_id
    )::integer AS stored,
    coalesce(a.attempt_index, -1)::integer AS attempt_index,
    coalesce(a.lease_epoch, 0)::bigint AS lease_epoch,
    a.lease_expires_at_ms,
    a.terminal_at_ms,
    a.outcome,
    a.ffx_attempt_type,
    a.ffx_attempt_id
FROM input AS i
LEFT JOIN LATERAL (
    SELECT
        t.attempt_index,
        t.lease_epoch,
        t.lease_expires_at_ms,
        t.terminal_at_ms,
        t.outcome,
        t.ffx_attempt_type,
        t.ffx_attempt_id
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    ORDER BY t.attempt_index
    FOR UPDATE SKIP LOCKED
) AS a ON true;

-- name: LeaseTakenExecutions :exec
-- LeaseTakenExecutions writes the leases decided for executions the caller has locked: the execution rows, their
-- attempt rows (inserted, or taken over if the index exists) and one event each. A deadline of 0 leaves the stored one;
-- reclaims are added to the number of lost leases.
--
-- Passages: claim_running, claim_timer, claim_events, claim_attempts.
-- Used by: engine.Claim, engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach, interop.ClaimExecution,
-- interop.IssueGrantAndClaim, interop.ClaimFromResumeGrant, interop.ReclaimExecution.
-- Locks: L1 held; L2 held, or new; queue held, by the execution's row; timers new; L7 new.
WITH input AS (
    -- The leases as decided, one row each.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@attempt_types::text[]) AS attempt_type,
        unnest(@attempt_ids::uuid[]) AS attempt_id,
        unnest(@lease_ids::uuid[]) AS lease_id,
        unnest(@lease_epochs::bigint[]) AS lease_epoch,
        unnest(@timeouts_at_ms::bigint[]) AS timeout_at_ms,
        unnest(@inserted::boolean[]) AS inserted,
        unnest(@reclaims::integer[]) AS reclaims,
        unnest(@deadlines_at_ms::bigint[]) AS deadline_at_ms,
        @now_ms::bigint AS now_ms
    LIMIT cardinality(@execution_ids::uuid[])
),
claimed AS (
    -- The executions, now active, with the columns the parts below need.
    UPDATE ff_exec_core AS e
    SET
        -- The state of a claimed execution e. From i: now_ms, the time of the claim.
        lifecycle_phase = 'active',
        ownership_state = 'leased',
        eligibility_state = 'not_applicable',
        public_state = 'running',
        attempt_state = 'running_attempt',
        blocking_reason = NULL,
        started_at_ms = coalesce(e.started_at_ms, i.now_ms),
        ffx_delay_until_ms = NULL,
        ffx_last_mutation_at_ms = i.now_ms,
        attempt_index = i.attempt_index,
        deadline_at_ms = CASE
            WHEN i.deadline_at_ms > 0 THEN i.deadline_at_ms
            ELSE nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0)
        END,
        ffx_execution_deadline_ms = CASE
            WHEN i.deadline_at_ms > 0 THEN i.deadline_at_ms
            ELSE e.ffx_execution_deadline_ms
        END,
        lease_reclaim_count = greatest(e.lease_reclaim_count, 0) + i.reclaims,
        ffx_attempt_count = coalesce(e.ffx_attempt_count, 0) + i.inserted::integer,
        ffx_lease_epoch = i.lease_epoch
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        i.attempt_index,
        i.attempt_type,
        i.attempt_id,
        i.lease_id,
        i.lease_epoch,
        i.now_ms,
        i.now_ms + @lease_ttl_ms::bigint AS lease_expires_at_ms,
        nullif(i.timeout_at_ms, 0) AS timeout_at_ms,
        CASE
            WHEN e.raw_fields #>> '{next_attempt_policy,attempt_index}' = i.attempt_index::text
                THEN e.raw_fields #> '{next_attempt_policy,policy}'
        END AS attempt_policy,
        e.lane_id,
        e.priority,
        e.created_at_ms,
        e.ffx_namespace,
        e.ffx_instance_tag
),
dequeued AS (
    -- Their queue entries, deleted.
    DELETE FROM ffx_ready AS r
    USING claimed AS l
    WHERE
        r.lane_id = ANY (ARRAY[l.lane_id])
        AND r.rank = - l.priority::bigint
        AND r.created_at_ms = l.created_at_ms
        AND r.execution_id = l.execution_id
        AND r.partition_key = l.partition_key
),
timed AS (
    -- One timer for all, named by the first of lease_ids. From claimed: the attempts' keys, and lease_expires_at_ms.
    INSERT INTO ffx_lease_timer (due_at_ms, timer_id, partition_keys, execution_ids, attempt_indexes)
    SELECT
        min(n.lease_expires_at_ms),
        CAST((@lease_ids::uuid[])[1] AS uuid),
        array_agg(n.partition_key),
        array_agg(n.execution_id),
        array_agg(n.attempt_index)
    FROM claimed AS n
    HAVING count(*) > 0
),
leased_events AS (
    -- The lease events. From claimed: partition_key, execution_id, lease_id, now_ms, ffx_namespace, ffx_instance_tag.
    INSERT INTO ff_lease_event (
        execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, instance_tag, ffx_worker_instance_id
    )
    SELECT
        n.execution_id::text, n.lease_id::text, @event_type::text, n.now_ms, n.partition_key, n.ffx_namespace, n.ffx_instance_tag,
        @worker_instance_id::text
    FROM claimed AS n
    WHERE coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
        IN ('all', CASE WHEN @event_type::text = 'reclaimed' THEN 'lost' END)
)
INSERT INTO ff_attempt AS a (
    partition_key, execution_id, attempt_index, worker_id, worker_instance_id, lease_epoch, lease_expires_at_ms,
    started_at_ms, policy, ffx_attempt_type, ffx_attempt_id, ffx_lease_id, ffx_timeout_at_ms
)
SELECT
    n.partition_key,
    n.execution_id,
    n.attempt_index,
    @worker_id::text,
    @worker_instance_id::text,
    n.lease_epoch,
    n.lease_expires_at_ms,
    n.now_ms,
    n.attempt_policy,
    n.attempt_type,
    n.attempt_id,
    n.lease_id,
    n.timeout_at_ms
FROM claimed AS n
ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE SET
    worker_id = excluded.worker_id,
    worker_instance_id = excluded.worker_instance_id,
    lease_epoch = excluded.lease_epoch,
    lease_expires_at_ms = excluded.lease_expires_at_ms,
    started_at_ms = coalesce(a.started_at_ms, excluded.started_at_ms),
    terminal_at_ms = NULL,
    outcome = NULL,
    ffx_attempt_type = excluded.ffx_attempt_type,
    ffx_attempt_id = excluded.ffx_attempt_id,
    ffx_lease_id = excluded.ffx_lease_id,
    ffx_timeout_at_ms = excluded.ffx_timeout_at_ms,
    ffx_delay_until_ms = NULL,
    ffx_resumed_at_ms = CASE WHEN a.started_at_ms IS NOT NULL THEN excluded.started_at_ms END;
