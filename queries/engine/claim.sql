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
-- Used by: engine.Claim, engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order); L2 skips (interrupted attempts FOR NO KEY
-- UPDATE); queue held, by the execution's row; timers new; L7 new. Spans partitions.
WITH halted AS MATERIALIZED (
    -- include claim_halted
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
        -- include claim_queue
    ) AS r
    CROSS JOIN LATERAL (
        SELECT
            t.ctid::tid AS row_id,
            t.attempt_state,
            coalesce(t.ffx_last_mutation_at_ms, t.created_at_ms) AS ready_at_ms
        -- include claim_execution
    ) AS c
    WHERE NOT EXISTS (SELECT FROM halted)
    LIMIT @max_items::integer
),
claimed AS (
    -- The executions, now active under their next epoch, with the columns the parts below need.
    UPDATE ff_exec_core AS e
    SET
        -- include claim_running: claim = c
        -- include claim_next_lease
    -- include claim_claimed
),
dequeued AS (
    -- include claim_dequeued
),
opened_attempts AS (
    -- The new attempts, with their leases.
    -- include claim_attempts
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
    -- include claim_timer
),
leased_events AS (
    -- include claim_events: event = 'acquired'
)
SELECT
    (CASE n.prior_attempt_state WHEN 'attempt_interrupted' THEN (r.by_lease -> n.lease_id::text ->> 'id')::uuid ELSE n.attempt_id END)::uuid AS attempt_id,
    (CASE n.prior_attempt_state WHEN 'attempt_interrupted' THEN coalesce(r.by_lease -> n.lease_id::text ->> 'type', '') ELSE '' END)::text AS attempt_type,
    -- include claim_columns
FROM claimed AS n
CROSS JOIN resumed AS r
WHERE
    1 / (
        (SELECT count(*) FROM claimed AS i WHERE i.prior_attempt_state = 'attempt_interrupted')
        = (SELECT count(*) FROM resumed_attempts)
    )::integer = 1
UNION ALL
-- include claim_halt_row
