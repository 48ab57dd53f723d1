-- name: ClaimAfterPositions :many
-- ClaimAfterPositions leases up to max_items claimable executions of one lane, over all partitions, after the scan
-- positions, which the caller passes highest priority first. The statement skips interrupted attempts, which a full
-- scan resumes: resuming costs a tenth of a statement. Fewer rows than asked for: nothing more was claimable and
-- unlocked there. halt: as in ClaimFromHead.
--
-- ClaimAfterPositions is the fast path for canonical rows, all or nothing. SQLSTATE 23505 (an attempt row is in the
-- way) keeps nothing; the caller then claims by TakeClaimable, which examines each row alone.
--
-- Passages: claim_halted, claim_after, claim_running, claim_next_lease, claim_claimed, claim_dequeued, claim_attempts,
-- claim_timer, claim_events, claim_columns, claim_halt_row.
-- Used by: engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order); L2 new; queue held, by the execution's row;
-- timers new; L7 new. Spans partitions.
WITH halted AS MATERIALIZED (
    -- Why the worker may not claim here: lane paused, or worker drained. One scan for both takes half the time of two.
    SELECT p.subject
    FROM ffx_pause AS p
    WHERE
        p.name = ANY (ARRAY[@lane_id::text, @worker_instance_id::text])
        AND p.name = CASE p.subject WHEN 'lane' THEN @lane_id::text ELSE @worker_instance_id::text END
        AND (p.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
),
positions AS (
    -- The scan positions, highest priority first.
    SELECT
        unnest(@position_ranks::bigint[]) AS rank,
        unnest(@position_created_at_ms::bigint[]) AS created_at_ms,
        unnest(@position_execution_ids::uuid[]) AS execution_id
),
candidates AS (
    -- The rows to claim, in claim order, their executions locked, with the ids of their leases.
    SELECT
        e.row_id,
        e.entry_id,
        e.partition_key,
        e.execution_id,
        e.attempt_state,
        e.ready_at_ms,
        (@attempt_ids::uuid[])[row_number() OVER ()] AS attempt_id,
        (@lease_ids::uuid[])[row_number() OVER ()] AS lease_id,
        (SELECT ffx_now_ms(sqlc.narg(now_ms))) AS now_ms
    FROM positions AS p
    CROSS JOIN LATERAL (
        -- The entries after a position p (rank, created_at_ms, execution_id) whose executions are claimable.
        SELECT
            c.ctid::tid AS row_id,
            r.ctid::tid AS entry_id,
            c.partition_key,
            c.execution_id,
            c.attempt_state,
            coalesce(c.ffx_last_mutation_at_ms, c.created_at_ms) AS ready_at_ms
        FROM ffx_ready AS r
        JOIN ff_exec_core AS c ON c.partition_key = r.partition_key AND c.execution_id = r.execution_id
        WHERE
            r.lane_id = @lane_id
            AND r.rank = p.rank
            AND (r.created_at_ms, r.execution_id) > (p.created_at_ms, p.execution_id)
            AND r.required_capabilities <@ @capabilities::text[]
            AND (r.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE
            -- IS NOT DISTINCT FROM uses no index: the execution is found by key, whatever other indexes there are.
            AND c.lane_id IS NOT DISTINCT FROM r.lane_id
            AND - c.priority::bigint = r.rank
            AND c.created_at_ms = r.created_at_ms
            AND c.lifecycle_phase IS NOT DISTINCT FROM 'runnable'
            AND c.eligibility_state = 'eligible_now'
            AND c.required_capabilities <@ @capabilities::text[]
            AND c.attempt_state <> 'attempt_interrupted'
        ORDER BY
            r.created_at_ms,
            r.execution_id
        LIMIT @max_items::integer
        FOR NO KEY UPDATE OF c SKIP LOCKED
    ) AS e
    WHERE NOT EXISTS (SELECT FROM halted)
    LIMIT @max_items::integer
),
claimed AS (
    -- The executions, now active under their next epoch, with the columns the parts below need.
    UPDATE ff_exec_core AS e
    SET
        -- The state of a claimed execution e. From c: now_ms, the time of the claim.
        lifecycle_phase = 'active',
        ownership_state = 'leased',
        eligibility_state = 'not_applicable',
        public_state = 'running',
        attempt_state = 'running_attempt',
        blocking_reason = NULL,
        started_at_ms = coalesce(e.started_at_ms, c.now_ms),
        ffx_delay_until_ms = NULL,
        ffx_last_mutation_at_ms = c.now_ms,
        -- The deadline a delay covered counts again. From candidates AS c: attempt_state.
        deadline_at_ms = nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0),
        ffx_attempt_count = coalesce(e.ffx_attempt_count, 0) + (c.attempt_state IS DISTINCT FROM 'attempt_interrupted')::integer,
        ffx_lease_epoch = coalesce(e.ffx_lease_epoch, 0) + 1
    -- From candidates: row_id, entry_id, partition_key, execution_id, attempt_state, ready_at_ms, attempt_id, lease_id, now_ms.
    FROM candidates AS c
    WHERE
        -- A row changed between snapshot and lock is not found by ctid and stays unchanged.
        e.ctid = c.row_id
        AND e.partition_key = c.partition_key
        AND e.execution_id = c.execution_id
    RETURNING
        c.entry_id,
        c.attempt_id, c.lease_id,
        c.ready_at_ms,
        c.now_ms, c.now_ms + @lease_ttl_ms::bigint AS lease_expires_at_ms,
        e.partition_key,
        e.execution_id,
        e.flow_id,
        e.attempt_index,
        e.ffx_lease_epoch AS lease_epoch,
        c.attempt_state AS prior_attempt_state,
        ffx_attempt_type(c.attempt_state) AS attempt_type,
        ffx_attempt_policy(c.attempt_state, e.raw_fields, e.attempt_index) AS attempt_policy,
        ffx_attempt_timeout_at(e.policy, c.now_ms) AS timeout_at_ms,
        e.priority,
        e.created_at_ms,
        e.payload,
        e.raw_fields,
        e.ffx_retry_count,
        e.ffx_limit_ids, e.ffx_trace,
        e.ffx_namespace, e.ffx_instance_tag
),
dequeued AS (
    -- Deleted. From claimed: entry_id, partition_key, execution_id. OFFSET 0: a joined whole row would read payloads again.
    DELETE FROM ffx_ready AS r
    USING (SELECT n.entry_id, n.partition_key, n.execution_id FROM claimed AS n OFFSET 0) AS c
    WHERE
        r.ctid = c.entry_id
        AND r.partition_key = c.partition_key
        AND r.execution_id = c.execution_id
),
opened_attempts AS (
    -- The new attempts, with their leases.
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
        n.execution_id::text, n.lease_id::text, 'acquired', n.now_ms, n.partition_key, n.ffx_namespace, n.ffx_instance_tag,
        @worker_instance_id::text
    FROM claimed AS n
    WHERE coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
        IN ('all', CASE WHEN 'acquired' = 'reclaimed' THEN 'lost' END)
)
SELECT
    n.attempt_id::uuid AS attempt_id,
    CAST('' AS text) AS attempt_type,
    -- The columns of a claimed row n that are equal for a new and a resumed attempt.
    n.partition_key,
    n.execution_id,
    n.flow_id,
    n.attempt_index,
    n.lease_epoch::bigint AS lease_epoch,
    n.lease_id::uuid AS lease_id,
    n.prior_attempt_state,
    n.priority,
    n.created_at_ms,
    n.ready_at_ms::bigint AS ready_at_ms,
    n.payload,
    coalesce(n.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    (n.raw_fields -> 'tags')::jsonb AS tags,
    coalesce(n.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(n.timeout_at_ms, 0)::bigint AS timeout_at_ms,
    n.lease_expires_at_ms::bigint AS lease_expires_at_ms,
    n.ffx_limit_ids AS limit_ids,
    n.ffx_trace,
    CAST('' AS text) AS halt
FROM claimed AS n
UNION ALL
SELECT
    -- No execution: why the claim halts.
    CAST('00000000-0000-0000-0000-000000000000' AS uuid), '', CAST(-1 AS smallint),
    CAST('00000000-0000-0000-0000-000000000000' AS uuid), NULL, 0, 0, CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    '', 0, 0, 0, NULL, '', CAST(NULL AS jsonb), 0, 0, 0, CAST(NULL AS uuid[]), NULL, h.subject
FROM halted AS h;

-- name: ClaimOneAfterPosition :many
-- ClaimOneAfterPosition is ClaimAfterPositions for one execution after one scan position. Setting up the parts takes
-- a quarter of the time of a statement for one execution, and without arrays there is nothing to number, to unnest or
-- to aggregate.
--
-- Passages: claim_halted, claim_after, claim_running, claim_next_lease, claim_claimed, claim_dequeued, claim_attempts,
-- claim_events, claim_columns, claim_halt_row.
-- Used by: engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order); L2 new; queue held, by the execution's row;
-- timers new; L7 new. Spans partitions.
WITH halted AS MATERIALIZED (
    -- Why the worker may not claim here: lane paused, or worker drained. One scan for both takes half the time of two.
    SELECT p.subject
    FROM ffx_pause AS p
    WHERE
        p.name = ANY (ARRAY[@lane_id::text, @worker_instance_id::text])
        AND p.name = CASE p.subject WHEN 'lane' THEN @lane_id::text ELSE @worker_instance_id::text END
        AND (p.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
),
candidates AS (
    -- The row to claim, the execution locked, with the ids of the lease.
    SELECT
        e.row_id,
        e.entry_id,
        e.partition_key,
        e.execution_id,
        e.attempt_state,
        e.ready_at_ms,
        @attempt_id::uuid AS attempt_id,
        @lease_id::uuid AS lease_id,
        ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
    FROM (
        SELECT
            @position_rank::bigint AS rank,
            @position_created_at_ms::bigint AS created_at_ms,
            @position_execution_id::uuid AS execution_id
    ) AS p
    CROSS JOIN LATERAL (
        -- The entries after a position p (rank, created_at_ms, execution_id) whose executions are claimable.
        SELECT
            c.ctid::tid AS row_id,
            r.ctid::tid AS entry_id,
            c.partition_key,
            c.execution_id,
            c.attempt_state,
            coalesce(c.ffx_last_mutation_at_ms, c.created_at_ms) AS ready_at_ms
        FROM ffx_ready AS r
        JOIN ff_exec_core AS c ON c.partition_key = r.partition_key AND c.execution_id = r.execution_id
        WHERE
            r.lane_id = @lane_id
            AND r.rank = p.rank
            AND (r.created_at_ms, r.execution_id) > (p.created_at_ms, p.execution_id)
            AND r.required_capabilities <@ @capabilities::text[]
            AND (r.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE
            -- IS NOT DISTINCT FROM uses no index: the execution is found by key, whatever other indexes there are.
            AND c.lane_id IS NOT DISTINCT FROM r.lane_id
            AND - c.priority::bigint = r.rank
            AND c.created_at_ms = r.created_at_ms
            AND c.lifecycle_phase IS NOT DISTINCT FROM 'runnable'
            AND c.eligibility_state = 'eligible_now'
            AND c.required_capabilities <@ @capabilities::text[]
            AND c.attempt_state <> 'attempt_interrupted'
        ORDER BY
            r.created_at_ms,
            r.execution_id
        LIMIT 1
        FOR NO KEY UPDATE OF c SKIP LOCKED
    ) AS e
    WHERE NOT EXISTS (SELECT FROM halted)
),
claimed AS (
    -- The executions, now active under their next epoch, with the columns the parts below need.
    UPDATE ff_exec_core AS e
    SET
        -- The state of a claimed execution e. From c: now_ms, the time of the claim.
        lifecycle_phase = 'active',
        ownership_state = 'leased',
        eligibility_state = 'not_applicable',
        public_state = 'running',
        attempt_state = 'running_attempt',
        blocking_reason = NULL,
        started_at_ms = coalesce(e.started_at_ms, c.now_ms),
        ffx_delay_until_ms = NULL,
        ffx_last_mutation_at_ms = c.now_ms,
        -- The deadline a delay covered counts again. From candidates AS c: attempt_state.
        deadline_at_ms = nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0),
        ffx_attempt_count = coalesce(e.ffx_attempt_count, 0) + (c.attempt_state IS DISTINCT FROM 'attempt_interrupted')::integer,
        ffx_lease_epoch = coalesce(e.ffx_lease_epoch, 0) + 1
    -- From candidates: row_id, entry_id, partition_key, execution_id, attempt_state, ready_at_ms, attempt_id, lease_id, now_ms.
    FROM candidates AS c
    WHERE
        -- A row changed between snapshot and lock is not found by ctid and stays unchanged.
        e.ctid = c.row_id
        AND e.partition_key = c.partition_key
        AND e.execution_id = c.execution_id
    RETURNING
        c.entry_id,
        c.attempt_id, c.lease_id,
        c.ready_at_ms,
        c.now_ms, c.now_ms + @lease_ttl_ms::bigint AS lease_expires_at_ms,
        e.partition_key,
        e.execution_id,
        e.flow_id,
        e.attempt_index,
        e.ffx_lease_epoch AS lease_epoch,
        c.attempt_state AS prior_attempt_state,
        ffx_attempt_type(c.attempt_state) AS attempt_type,
        ffx_attempt_policy(c.attempt_state, e.raw_fields, e.attempt_index) AS attempt_policy,
        ffx_attempt_timeout_at(e.policy, c.now_ms) AS timeout_at_ms,
        e.priority,
        e.created_at_ms,
        e.payload,
        e.raw_fields,
        e.ffx_retry_count,
        e.ffx_limit_ids, e.ffx_trace,
        e.ffx_namespace, e.ffx_instance_tag
),
dequeued AS (
    -- Deleted. From claimed: entry_id, partition_key, execution_id. OFFSET 0: a joined whole row would read payloads again.
    DELETE FROM ffx_ready AS r
    USING (SELECT n.entry_id, n.partition_key, n.execution_id FROM claimed AS n OFFSET 0) AS c
    WHERE
        r.ctid = c.entry_id
        AND r.partition_key = c.partition_key
        AND r.execution_id = c.execution_id
),
opened_attempts AS (
    -- The new attempts, with their leases.
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
),
timed AS (
    -- The lease timer.
    INSERT INTO ffx_lease_timer (
        due_at_ms, timer_id, partition_keys, execution_ids, attempt_indexes
    )
    SELECT
        n.lease_expires_at_ms,
        n.lease_id,
        ARRAY[n.partition_key],
        ARRAY[n.execution_id],
        ARRAY[n.attempt_index]
    FROM claimed AS n
),
leased_events AS (
    -- The lease events. From claimed: partition_key, execution_id, lease_id, now_ms, ffx_namespace, ffx_instance_tag.
    INSERT INTO ff_lease_event (
        execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, instance_tag, ffx_worker_instance_id
    )
    SELECT
        n.execution_id::text, n.lease_id::text, 'acquired', n.now_ms, n.partition_key, n.ffx_namespace, n.ffx_instance_tag,
        @worker_instance_id::text
    FROM claimed AS n
    WHERE coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
        IN ('all', CASE WHEN 'acquired' = 'reclaimed' THEN 'lost' END)
)
SELECT
    n.attempt_id::uuid AS attempt_id,
    CAST('' AS text) AS attempt_type,
    -- The columns of a claimed row n that are equal for a new and a resumed attempt.
    n.partition_key,
    n.execution_id,
    n.flow_id,
    n.attempt_index,
    n.lease_epoch::bigint AS lease_epoch,
    n.lease_id::uuid AS lease_id,
    n.prior_attempt_state,
    n.priority,
    n.created_at_ms,
    n.ready_at_ms::bigint AS ready_at_ms,
    n.payload,
    coalesce(n.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    (n.raw_fields -> 'tags')::jsonb AS tags,
    coalesce(n.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(n.timeout_at_ms, 0)::bigint AS timeout_at_ms,
    n.lease_expires_at_ms::bigint AS lease_expires_at_ms,
    n.ffx_limit_ids AS limit_ids,
    n.ffx_trace,
    CAST('' AS text) AS halt
FROM claimed AS n
UNION ALL
SELECT
    -- No execution: why the claim halts.
    CAST('00000000-0000-0000-0000-000000000000' AS uuid), '', CAST(-1 AS smallint),
    CAST('00000000-0000-0000-0000-000000000000' AS uuid), NULL, 0, 0, CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    '', 0, 0, 0, NULL, '', CAST(NULL AS jsonb), 0, 0, 0, CAST(NULL AS uuid[]), NULL, h.subject
FROM halted AS h;

-- name: ListLaneEnds :many
-- ListLaneEnds returns the last entry of a lane's queue at each priority with more than crowd entries, of the max_items
-- highest priorities. No row: no priority has so many.
--
-- Used by: engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: none. Spans partitions.
WITH RECURSIVE ends AS (
    SELECT
        0 AS ord,
        (
            SELECT q.rank
            FROM ffx_ready AS q
            WHERE q.lane_id = @lane_id
            ORDER BY q.rank
            LIMIT 1
        ) AS rank
    UNION ALL
    SELECT
        ends.ord + 1,
        (
            SELECT q.rank
            FROM ffx_ready AS q
            WHERE
                q.lane_id = @lane_id
                AND q.rank > ends.rank
            ORDER BY q.rank
            LIMIT 1
        )
    FROM ends
    WHERE
        ends.rank IS NOT NULL
        AND ends.ord < sqlc.arg(max_items)::integer - 1
)
SELECT
    e.rank::bigint AS rank,
    l.created_at_ms,
    l.execution_id
FROM ends AS e
CROSS JOIN LATERAL (
    SELECT
        q.created_at_ms,
        q.execution_id
    FROM ffx_ready AS q
    WHERE
        q.lane_id = @lane_id
        AND q.rank = e.rank
    ORDER BY
        q.created_at_ms DESC,
        q.execution_id DESC
    LIMIT 1
) AS l
WHERE EXISTS (
    SELECT
    FROM ffx_ready AS q
    WHERE
        q.lane_id = @lane_id
        AND q.rank = e.rank
    OFFSET @crowd::integer
)
ORDER BY e.ord;
