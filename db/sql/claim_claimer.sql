-- name: ClaimAfterPositions :many
-- ClaimAfterPositions leases up to max_items claimable executions of one lane, over all partitions, after the scan
-- positions, which the caller passes highest priority first. It skips interrupted attempts, which a full scan
-- resumes. Fewer rows than asked for: nothing more was claimable and unlocked there. halt: as in ClaimFromHead.
--
-- This is the fast path: it serves canonical rows only and is all or nothing. SQLSTATE 23505 (an attempt row is in
-- the way) keeps nothing; the caller then claims by TakeClaimable, which judges each row alone.
--
-- Used by: engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order); L2 new; queue held, by the execution's row;
-- timers new; L7 new. Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the claim, for all its rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
halted AS MATERIALIZED (
    -- Why this worker may not claim here: the lane is paused, or the worker is drained. One scan for both takes half
    -- the time of two.
    SELECT p.subject
    FROM ffx_pause AS p
    WHERE
        p.name = ANY (ARRAY[@lane_id::text, @worker_instance_id::text])
        AND CASE p.subject
            WHEN 'lane' THEN p.name = @lane_id::text
            ELSE p.name = @worker_instance_id::text
        END
),
positions AS (
    -- The scan positions, highest priority first.
    SELECT
        unnest(@position_ranks::bigint[]) AS rank,
        unnest(@position_created_at_ms::bigint[]) AS created_at_ms,
        unnest(@position_execution_ids::uuid[]) AS execution_id
),
candidates AS (
    -- The rows to claim, in claim order, their executions locked.
    SELECT
        e.row_id,
        e.entry_id,
        e.partition_key,
        e.execution_id,
        e.attempt_state
    FROM positions AS p
    CROSS JOIN LATERAL (
        SELECT
            c.ctid::tid AS row_id,
            r.ctid::tid AS entry_id,
            c.partition_key,
            c.execution_id,
            c.attempt_state
        FROM ffx_ready AS r
        JOIN ff_exec_core AS c ON c.partition_key = r.partition_key AND c.execution_id = r.execution_id
        WHERE
            r.lane_id = @lane_id
            AND r.rank = p.rank
            AND (r.created_at_ms, r.execution_id) > (p.created_at_ms, p.execution_id)
            AND r.required_capabilities <@ @capabilities::text[]
            AND (r.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE
            -- IS NOT DISTINCT FROM uses no index: the execution is found by its key, whatever other indexes there are.
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
    -- The executions, now active under their next epoch, with the columns that the parts below need.
    UPDATE ff_exec_core AS e
    SET
        -- Assigned to itself: otherwise PostgreSQL 18 reads the expressions of the generated columns for each row,
        -- needed or not.
        raw_fields = e.raw_fields,
        lifecycle_phase = 'active',
        ownership_state = 'leased',
        eligibility_state = 'not_applicable',
        public_state = 'running',
        attempt_state = 'running_attempt',
        blocking_reason = NULL,
        started_at_ms = coalesce(e.started_at_ms, (SELECT now_ms FROM clock)),
        deadline_at_ms = CASE
            WHEN e.ffx_execution_deadline_ms >= 0 THEN nullif(e.ffx_execution_deadline_ms, 0)
            ELSE e.deadline_at_ms
        END,
        -- A negative deadline belongs to an end that another program has undone.
        ffx_execution_deadline_ms = CASE WHEN e.ffx_execution_deadline_ms >= 0 THEN e.ffx_execution_deadline_ms END,
        ffx_delay_until_ms = NULL,
        ffx_attempt_count = coalesce(e.ffx_attempt_count, 0) + 1,
        ffx_lease_epoch = coalesce(e.ffx_lease_epoch, 0) + 1,
        ffx_last_mutation_at_ms = (SELECT now_ms FROM clock)
    FROM candidates AS c
    WHERE
        -- A row changed between snapshot and lock is not found under its ctid and stays unchanged.
        e.ctid = c.row_id
        AND e.partition_key = ANY (ARRAY[c.partition_key])
        AND e.execution_id = c.execution_id
    RETURNING
        c.entry_id,
        e.partition_key,
        e.execution_id,
        e.flow_id,
        e.attempt_index,
        e.ffx_lease_epoch AS lease_epoch,
        c.attempt_state AS prior_attempt_state,
        e.priority,
        e.created_at_ms,
        e.payload,
        e.policy,
        e.raw_fields,
        e.ffx_retry_count,
        e.ffx_namespace,
        e.ffx_instance_tag
),
dequeued AS (
    -- Their queue entries, deleted.
    DELETE FROM ffx_ready AS r
    USING claimed AS c
    WHERE
        r.ctid = c.entry_id
        AND (r.partition_key = c.partition_key) IS TRUE
        AND (r.execution_id = c.execution_id) IS TRUE
),
numbered AS (
    -- The claimed ones with the number that gives each its ids, and when its attempt times out.
    SELECT
        row_number() OVER () AS ord,
        partition_key,
        execution_id,
        flow_id,
        attempt_index,
        lease_epoch,
        prior_attempt_state,
        priority,
        created_at_ms,
        payload,
        raw_fields,
        ffx_retry_count,
        ffx_namespace,
        ffx_instance_tag,
        ffx_attempt_timeout_at(policy, (SELECT now_ms FROM clock)) AS timeout_at_ms
    FROM claimed
),
opened_attempts AS (
    -- The attempts that begin, with their leases.
    INSERT INTO ff_attempt (
        partition_key,
        execution_id,
        attempt_index,
        worker_id,
        worker_instance_id,
        lease_epoch,
        lease_expires_at_ms,
        started_at_ms,
        policy,
        ffx_attempt_type,
        ffx_attempt_id,
        ffx_lease_id,
        ffx_timeout_at_ms
    )
    SELECT
        n.partition_key,
        n.execution_id,
        n.attempt_index,
        @worker_id::text,
        @worker_instance_id::text,
        n.lease_epoch,
        (SELECT now_ms FROM clock) + @lease_ttl_ms::bigint,
        (SELECT now_ms FROM clock),
        CASE
            -- A first attempt has none, so its fields need not be read.
            WHEN
                n.prior_attempt_state <> 'pending_first_attempt'
                AND n.raw_fields #>> '{next_attempt_policy,attempt_index}' = n.attempt_index::text
                THEN n.raw_fields #> '{next_attempt_policy,policy}'
        END,
        CASE n.prior_attempt_state
            WHEN 'pending_retry_attempt' THEN 'retry'
            WHEN 'pending_replay_attempt' THEN 'replay'
            ELSE 'initial'
        END,
        (@attempt_ids::uuid[])[n.ord],
        (@lease_ids::uuid[])[n.ord],
        n.timeout_at_ms
    FROM numbered AS n
),
timed AS (
    -- One lease timer for all of them.
    INSERT INTO ffx_lease_timer (
        due_at_ms,
        timer_id,
        partition_keys,
        execution_ids,
        attempt_indexes
    )
    SELECT
        (SELECT now_ms FROM clock) + @lease_ttl_ms::bigint,
        CAST((@lease_ids::uuid[])[1] AS uuid),
        array_agg(n.partition_key),
        array_agg(n.execution_id),
        array_agg(n.attempt_index)
    FROM numbered AS n
    HAVING count(*) > 0
),
leased_events AS (
    -- The lease events.
    INSERT INTO ff_lease_event (
        execution_id,
        lease_id,
        event_type,
        occurred_at_ms,
        partition_key,
        namespace,
        instance_tag,
        ffx_worker_instance_id
    )
    SELECT
        n.execution_id::text,
        CAST((@lease_ids::uuid[])[n.ord] AS text),
        'acquired',
        (SELECT now_ms FROM clock),
        n.partition_key,
        n.ffx_namespace,
        n.ffx_instance_tag,
        @worker_instance_id::text
    FROM numbered AS n
)
SELECT
    n.partition_key,
    n.execution_id,
    n.flow_id,
    n.attempt_index,
    n.lease_epoch::bigint AS lease_epoch,
    CAST((@attempt_ids::uuid[])[n.ord] AS uuid) AS attempt_id,
    CAST((@lease_ids::uuid[])[n.ord] AS uuid) AS lease_id,
    n.prior_attempt_state,
    CAST(NULL AS text) AS attempt_type,
    n.priority,
    n.created_at_ms,
    n.payload,
    coalesce(n.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    (n.raw_fields -> 'tags')::jsonb AS tags,
    coalesce(n.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(n.timeout_at_ms, 0)::bigint AS timeout_at_ms,
    ((SELECT now_ms FROM clock) + @lease_ttl_ms::bigint)::bigint AS lease_expires_at_ms,
    CAST('' AS text) AS halt
FROM numbered AS n
UNION ALL
SELECT
    -- No execution: why the claim halts.
    CAST(-1 AS smallint),
    CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    NULL,
    0,
    0,
    CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    '',
    NULL,
    0,
    0,
    NULL,
    '',
    CAST(NULL AS jsonb),
    0,
    0,
    0,
    h.subject
FROM halted AS h;

-- name: ClaimOneAfterPosition :many
-- ClaimOneAfterPosition is ClaimAfterPositions for one execution after one scan position. Setting up the parts takes
-- a quarter of the time of a statement for one execution, and without arrays there are fewer parts.
--
-- Used by: engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order); L2 new; queue held, by the execution's row;
-- timers new; L7 new. Spans partitions.
WITH halted AS MATERIALIZED (
    -- Why this worker may not claim here: the lane is paused, or the worker is drained. One scan for both takes half
    -- the time of two.
    SELECT p.subject
    FROM ffx_pause AS p
    WHERE
        p.name = ANY (ARRAY[@lane_id::text, @worker_instance_id::text])
        AND CASE p.subject
            WHEN 'lane' THEN p.name = @lane_id::text
            ELSE p.name = @worker_instance_id::text
        END
),
candidate AS (
    -- The row to claim, its execution locked, and the time of the claim.
    SELECT
        e.row_id,
        e.entry_id,
        e.partition_key,
        e.execution_id,
        e.attempt_state,
        ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
    FROM (
        SELECT
            c.ctid::tid AS row_id,
            r.ctid::tid AS entry_id,
            c.partition_key,
            c.execution_id,
            c.attempt_state
        FROM ffx_ready AS r
        JOIN ff_exec_core AS c ON c.partition_key = r.partition_key AND c.execution_id = r.execution_id
        WHERE
            r.lane_id = @lane_id
            AND r.rank = @position_rank::bigint
            AND (r.created_at_ms, r.execution_id) > (@position_created_at_ms::bigint, @position_execution_id::uuid)
            AND r.required_capabilities <@ @capabilities::text[]
            AND (r.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE
            -- IS NOT DISTINCT FROM uses no index: the execution is found by its key, whatever other indexes there are.
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
    -- The execution, now active under its next epoch, with the columns that the parts below need.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'active',
        ownership_state = 'leased',
        eligibility_state = 'not_applicable',
        public_state = 'running',
        attempt_state = 'running_attempt',
        blocking_reason = NULL,
        started_at_ms = coalesce(e.started_at_ms, c.now_ms),
        deadline_at_ms = CASE
            WHEN e.ffx_execution_deadline_ms >= 0 THEN nullif(e.ffx_execution_deadline_ms, 0)
            ELSE e.deadline_at_ms
        END,
        -- A negative deadline belongs to an end that another program has undone.
        ffx_execution_deadline_ms = CASE WHEN e.ffx_execution_deadline_ms >= 0 THEN e.ffx_execution_deadline_ms END,
        ffx_delay_until_ms = NULL,
        ffx_attempt_count = coalesce(e.ffx_attempt_count, 0) + 1,
        ffx_lease_epoch = coalesce(e.ffx_lease_epoch, 0) + 1,
        ffx_last_mutation_at_ms = c.now_ms
    FROM candidate AS c
    WHERE
        -- A row changed between snapshot and lock is not found under its ctid and stays unchanged.
        e.ctid = c.row_id
        AND e.partition_key = ANY (ARRAY[c.partition_key])
        AND e.execution_id = c.execution_id
    RETURNING
        c.entry_id,
        c.now_ms,
        e.partition_key,
        e.execution_id,
        e.flow_id,
        e.attempt_index,
        e.ffx_lease_epoch AS lease_epoch,
        c.attempt_state AS prior_attempt_state,
        e.priority,
        e.created_at_ms,
        e.payload,
        ffx_attempt_timeout_at(e.policy, c.now_ms) AS timeout_at_ms,
        e.raw_fields,
        e.ffx_retry_count,
        e.ffx_namespace,
        e.ffx_instance_tag
),
dequeued AS (
    -- Its queue entry, deleted.
    DELETE FROM ffx_ready AS r
    USING claimed AS c
    WHERE
        r.ctid = c.entry_id
        AND (r.partition_key = c.partition_key) IS TRUE
        AND (r.execution_id = c.execution_id) IS TRUE
),
opened_attempt AS (
    -- The attempt that begins, with its lease.
    INSERT INTO ff_attempt (
        partition_key,
        execution_id,
        attempt_index,
        worker_id,
        worker_instance_id,
        lease_epoch,
        lease_expires_at_ms,
        started_at_ms,
        policy,
        ffx_attempt_type,
        ffx_attempt_id,
        ffx_lease_id,
        ffx_timeout_at_ms
    )
    SELECT
        n.partition_key,
        n.execution_id,
        n.attempt_index,
        @worker_id::text,
        @worker_instance_id::text,
        n.lease_epoch,
        n.now_ms + @lease_ttl_ms::bigint,
        n.now_ms,
        CASE
            -- A first attempt has none, so its fields need not be read.
            WHEN
                n.prior_attempt_state <> 'pending_first_attempt'
                AND n.raw_fields #>> '{next_attempt_policy,attempt_index}' = n.attempt_index::text
                THEN n.raw_fields #> '{next_attempt_policy,policy}'
        END,
        CASE n.prior_attempt_state
            WHEN 'pending_retry_attempt' THEN 'retry'
            WHEN 'pending_replay_attempt' THEN 'replay'
            ELSE 'initial'
        END,
        @attempt_id::uuid,
        @lease_id::uuid,
        n.timeout_at_ms
    FROM claimed AS n
),
timed AS (
    -- Its lease timer.
    INSERT INTO ffx_lease_timer (
        due_at_ms,
        timer_id,
        partition_keys,
        execution_ids,
        attempt_indexes
    )
    SELECT
        n.now_ms + @lease_ttl_ms::bigint,
        @lease_id::uuid,
        ARRAY[n.partition_key],
        ARRAY[n.execution_id],
        ARRAY[n.attempt_index]
    FROM claimed AS n
),
leased_event AS (
    -- The lease event.
    INSERT INTO ff_lease_event (
        execution_id,
        lease_id,
        event_type,
        occurred_at_ms,
        partition_key,
        namespace,
        instance_tag,
        ffx_worker_instance_id
    )
    SELECT
        n.execution_id::text,
        CAST(@lease_id::uuid AS text),
        'acquired',
        n.now_ms,
        n.partition_key,
        n.ffx_namespace,
        n.ffx_instance_tag,
        @worker_instance_id::text
    FROM claimed AS n
)
SELECT
    n.partition_key,
    n.execution_id,
    n.flow_id,
    n.attempt_index,
    n.lease_epoch::bigint AS lease_epoch,
    @attempt_id::uuid AS attempt_id,
    @lease_id::uuid AS lease_id,
    n.prior_attempt_state,
    CAST(NULL AS text) AS attempt_type,
    n.priority,
    n.created_at_ms,
    n.payload,
    coalesce(n.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    (n.raw_fields -> 'tags')::jsonb AS tags,
    coalesce(n.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(n.timeout_at_ms, 0)::bigint AS timeout_at_ms,
    (n.now_ms + @lease_ttl_ms::bigint)::bigint AS lease_expires_at_ms,
    CAST('' AS text) AS halt
FROM claimed AS n
UNION ALL
SELECT
    -- No execution: why the claim halts.
    CAST(-1 AS smallint),
    CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    NULL,
    0,
    0,
    CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    '',
    NULL,
    0,
    0,
    NULL,
    '',
    CAST(NULL AS jsonb),
    0,
    0,
    0,
    h.subject
FROM halted AS h;

-- name: ListLaneEnds :many
-- ListLaneEnds returns the last entry of a lane's queue at each priority that has more than crowd entries, of the
-- max_items highest priorities. No row: no priority has that many.
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
