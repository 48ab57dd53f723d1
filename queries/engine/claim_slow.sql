-- name: TakeClaimable :many
-- TakeClaimable locks up to max_items claimable executions of one lane from the head, in claim order: the first step of
-- the slow path. ClaimFromHead is the fast path.
--
-- Used by: engine.Claim, engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order). Spans partitions.
WITH halted AS MATERIALIZED (
    -- include claim_halted
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
    -- include claim_queue
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
    -- include claim_execution
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
        -- include claim_running: claim = i
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
    -- include claim_timer
),
leased_events AS (
    -- include claim_events: event = @event_type::text
)
-- include claim_attempts
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
