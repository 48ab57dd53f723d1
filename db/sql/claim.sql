-- name: ClaimFromHead :many
-- ClaimFromHead leases up to max_items claimable executions of one lane, over all partitions, in claim order. The
-- statement resumes interrupted attempts and opens new ones for the rest. Fewer rows than asked for: nothing more was
-- claimable and unlocked. A row with halt has no execution: the lane is paused, or the worker is drained.
--
-- ClaimFromHead is the fast path for canonical rows, all or nothing. SQLSTATE 22012 (an interrupted attempt does not
-- match the execution, or another transaction holds the attempt) or 23505 (an attempt row is in the way) keeps nothing;
-- the caller then claims by TakeClaimable, which examines each row alone. Interrupted attempts are looked up one by one:
-- a plan made before there were any attempts would read all until the next ANALYZE.
--
-- Passages: claim_halted, claim_queue, claim_execution, claim_running, claim_next_lease, claim_claimed, claim_dequeued,
-- claim_attempts, claim_timer, claim_events, claim_columns, claim_halt_row.
-- Used by: engine.Claim, engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order); L2 skips (interrupted attempts FOR NO KEY
-- UPDATE); queue held, by the execution's row; timers new; L7 new. Spans partitions.
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
    -- The rows to claim, in claim order, their executions locked, with the ids of their leases.
    SELECT
        c.row_id,
        r.entry_id,
        r.partition_key,
        r.execution_id,
        c.attempt_state,
        c.ready_at_ms,
        (@attempt_ids::uuid[])[row_number() OVER ()] AS attempt_id,
        (@lease_ids::uuid[])[row_number() OVER ()] AS lease_id,
        (SELECT ffx_now_ms(sqlc.narg(now_ms))) AS now_ms
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
            t.ctid::tid AS row_id,
            t.attempt_state,
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
    ) AS c
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
    WHERE n.prior_attempt_state <> 'attempt_interrupted'
),
resumed_attempts AS (
    -- The interrupted attempts that match their executions, with their leases. OFFSET 0: as for the queue entries.
    UPDATE ff_attempt AS a
    SET
        worker_id = @worker_id::text,
        worker_instance_id = @worker_instance_id::text,
        lease_epoch = n.lease_epoch,
        lease_expires_at_ms = n.lease_expires_at_ms,
        terminal_at_ms = NULL,
        outcome = NULL,
        ffx_attempt_id = coalesce(a.ffx_attempt_id, n.attempt_id),
        ffx_lease_id = n.lease_id,
        ffx_timeout_at_ms = n.timeout_at_ms,
        ffx_delay_until_ms = NULL,
        ffx_resumed_at_ms = n.now_ms
    FROM (
        SELECT n.partition_key, n.execution_id, n.attempt_index, n.attempt_id, n.lease_id, n.lease_epoch,
            n.lease_expires_at_ms, n.timeout_at_ms, n.now_ms
        FROM claimed AS n
        WHERE n.prior_attempt_state = 'attempt_interrupted'
        OFFSET 0
    ) AS n
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS row_id
        FROM ff_attempt AS t
        WHERE
            t.partition_key = n.partition_key
            AND t.execution_id = n.execution_id
            AND t.attempt_index = n.attempt_index
            -- Only ours: the library assigned the epoch before the claim's.
            AND t.lease_epoch = n.lease_epoch - 1
            AND t.terminal_at_ms IS NULL
            AND t.lease_expires_at_ms IS NULL
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS i
    WHERE
        a.ctid = i.row_id
        AND a.partition_key = n.partition_key
        AND a.execution_id = n.execution_id
        AND a.attempt_index = n.attempt_index
    RETURNING n.lease_id, jsonb_build_object('id', a.ffx_attempt_id, 'type', a.ffx_attempt_type) AS attempt
),
resumed AS MATERIALIZED (
    -- The resumed attempts by lease. A join would compare each pair.
    SELECT jsonb_object_agg(r.lease_id, r.attempt) AS by_lease FROM resumed_attempts AS r
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
    (CASE n.prior_attempt_state WHEN 'attempt_interrupted' THEN (r.by_lease -> n.lease_id::text ->> 'id')::uuid ELSE n.attempt_id END)::uuid AS attempt_id,
    (CASE n.prior_attempt_state WHEN 'attempt_interrupted' THEN coalesce(r.by_lease -> n.lease_id::text ->> 'type', '') ELSE '' END)::text AS attempt_type,
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
CROSS JOIN resumed AS r
WHERE
    1 / (
        (SELECT count(*) FROM claimed AS i WHERE i.prior_attempt_state = 'attempt_interrupted')
        = (SELECT count(*) FROM resumed_attempts)
    )::integer = 1
UNION ALL
SELECT
    -- No execution: why the claim halts.
    CAST('00000000-0000-0000-0000-000000000000' AS uuid), '', CAST(-1 AS smallint),
    CAST('00000000-0000-0000-0000-000000000000' AS uuid), NULL, 0, 0, CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    '', 0, 0, 0, NULL, '', CAST(NULL AS jsonb), 0, 0, 0, CAST(NULL AS uuid[]), NULL, h.subject
FROM halted AS h;
