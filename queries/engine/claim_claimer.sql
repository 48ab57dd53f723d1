-- name: ClaimAfterPositions :many
-- ClaimAfterPositions leases up to max_items claimable executions of one lane, over all partitions, after the scan
-- positions, which the caller passes highest priority first. The statement skips interrupted attempts, which a full
-- scan resumes: resuming costs a tenth of a statement. Fewer rows than asked for: nothing more was claimable and
-- unlocked there. halt: as in ClaimFromHead.
--
-- ClaimAfterPositions is the fast path for canonical rows, all or nothing. SQLSTATE 23505 (an attempt row is in the
-- way) keeps nothing; the caller then claims by TakeClaimable, which examines each row alone.
--
-- Used by: engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order); L2 new; queue held, by the execution's row;
-- timers new; L7 new. Spans partitions.
WITH halted AS MATERIALIZED (
    -- include claim_halted
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
        -- include claim_after
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
),
timed AS (
    -- include claim_timer
),
leased_events AS (
    -- include claim_events: event = 'acquired'
)
SELECT
    n.attempt_id::uuid AS attempt_id,
    CAST('' AS text) AS attempt_type,
    -- include claim_columns
FROM claimed AS n
UNION ALL
-- include claim_halt_row

-- name: ClaimOneAfterPosition :many
-- ClaimOneAfterPosition is ClaimAfterPositions for one execution after one scan position. Setting up the parts takes
-- a quarter of the time of a statement for one execution, and without arrays there is nothing to number, to unnest or
-- to aggregate.
--
-- Used by: engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.ClaimEach.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, in claim order); L2 new; queue held, by the execution's row;
-- timers new; L7 new. Spans partitions.
WITH halted AS MATERIALIZED (
    -- include claim_halted
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
        -- include claim_after
        LIMIT 1
        FOR NO KEY UPDATE OF c SKIP LOCKED
    ) AS e
    WHERE NOT EXISTS (SELECT FROM halted)
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
    -- include claim_events: event = 'acquired'
)
SELECT
    n.attempt_id::uuid AS attempt_id,
    CAST('' AS text) AS attempt_type,
    -- include claim_columns
FROM claimed AS n
UNION ALL
-- include claim_halt_row

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
