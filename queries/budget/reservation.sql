-- name: LockReservers :many
-- LockReservers locks the attempts of leases that reserve or settle, so none is deleted meanwhile, and returns their
-- places in the input. Renewals and ends neither block the statement nor wait for the lock: reservations of an ended
-- lease are deleted once due. No row: the attempt does not exist. The caller sorts the leases and checks each
-- afterwards.
--
-- Used by: budget.Reserve, budget.Settle.
-- Locks: L2 waits (attempt rows FOR KEY SHARE in array order).
-- include locked_reservers: lock = FOR KEY SHARE

-- name: TakeReservers :many
-- TakeReservers is LockReservers for leases of several callers. No row for an item: another transaction holds the
-- attempt, or the attempt does not exist.
--
-- Used by: budget.Reserve, budget.Settle.
-- Locks: L2 skips (attempt rows FOR KEY SHARE).
-- include locked_reservers: lock = FOR KEY SHARE SKIP LOCKED

-- name: ReadReserved :many
-- ReadReserved returns the reserved amounts of a budget, by dimension, and whether one is due for a look at the lease.
-- No row for a dimension: nothing is reserved. The caller has locked the budget.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: none.
SELECT
    r.dimensions_key,
    least(sum(r.amount), 9223372036854775807)::bigint AS amount,
    bool_or(r.expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms)))::boolean AS due
FROM ffx_budget_reservation AS r
WHERE
    r.partition_key = @partition_key::smallint
    AND r.budget_id = @budget_id::text
GROUP BY r.dimensions_key;

-- name: ReadReservationsOf :many
-- ReadReservationsOf returns the reservations of leases on a budget, with their places in the input. The caller has locked
-- the budget.
--
-- Used by: budget.Reserve, budget.Settle.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@lease_epochs::bigint[]) AS lease_epoch,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    r.dimensions_key,
    r.amount
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.dimensions_key,
        t.amount
    FROM ffx_budget_reservation AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.budget_id = @budget_id::text
        AND t.execution_id = i.execution_id
        AND t.attempt_index = i.attempt_index
        AND t.lease_epoch = i.lease_epoch
) AS r;

-- name: AddReservations :exec
-- AddReservations adds to the reservations of leases on a budget. The caller sorts by execution, attempt, epoch and
-- dimension.
--
-- Used by: budget.Reserve, budget.Settle.
-- Locks: L6 waits (in array order, for rows and for inserts of another transaction).
WITH input AS (
    SELECT
        unnest(@execution_partitions::smallint[]) AS execution_partition,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@lease_epochs::bigint[]) AS lease_epoch,
        unnest(@dimensions::text[]) AS dimension,
        unnest(@amounts::bigint[]) AS amount,
        unnest(@expiries_ms::bigint[]) AS expires_at_ms
)
INSERT INTO ffx_budget_reservation AS r (
    partition_key, budget_id, execution_partition, execution_id, attempt_index, lease_epoch, dimensions_key, amount, expires_at_ms
)
SELECT
    @partition_key::smallint,
    @budget_id::text,
    i.execution_partition,
    i.execution_id,
    i.attempt_index,
    i.lease_epoch,
    i.dimension,
    i.amount,
    i.expires_at_ms
FROM input AS i
ON CONFLICT ON CONSTRAINT ffx_budget_reservation_pkey DO UPDATE
SET
    amount = least(r.amount::numeric + excluded.amount, 9223372036854775807)::bigint,
    expires_at_ms = greatest(r.expires_at_ms, excluded.expires_at_ms);

-- name: ReduceReservations :exec
-- ReduceReservations takes amounts off the reservations of leases on a budget, and deletes the ones that fall to 0. The
-- caller has locked the budget, and sorts by execution, attempt, epoch and dimension.
--
-- Used by: budget.Reserve, budget.Settle.
-- Locks: L6 waits (rows FOR UPDATE in array order, then the UPDATE and the DELETE).
WITH input AS (
    -- The amounts.
    SELECT
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@lease_epochs::bigint[]) AS lease_epoch,
        unnest(@dimensions::text[]) AS dimension,
        unnest(@amounts::bigint[]) AS amount
    LIMIT cardinality(@execution_ids::uuid[])
),
held AS (
    -- The rows, locked, with the rest.
    SELECT
        r.row_id,
        r.partition_key,
        r.budget_id,
        r.execution_id,
        r.attempt_index,
        r.lease_epoch,
        r.dimensions_key,
        r.amount - i.amount AS left_over
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.ctid::tid AS row_id,
            t.partition_key,
            t.budget_id,
            t.execution_id,
            t.attempt_index,
            t.lease_epoch,
            t.dimensions_key,
            t.amount
        FROM ffx_budget_reservation AS t
        WHERE
            t.partition_key = @partition_key::smallint
            AND t.budget_id = @budget_id::text
            AND t.execution_id = i.execution_id
            AND t.attempt_index = i.attempt_index
            AND t.lease_epoch = i.lease_epoch
            AND t.dimensions_key = i.dimension
        FOR UPDATE
    ) AS r
),
reduced AS (
    -- The reservations with a rest.
    UPDATE ffx_budget_reservation AS r
    SET amount = h.left_over
    FROM held AS h
    WHERE
        -- include reservation_named
        AND h.left_over > 0
    RETURNING 1 AS one
)
DELETE FROM ffx_budget_reservation AS r
USING held AS h
WHERE
    -- include reservation_named
    AND h.left_over <= 0;

-- name: DropReservations :exec
-- DropReservations deletes all reservations on a locked budget.
--
-- Used by: budget.Delete, upkeep.ResetBudgets.
-- Locks: L6 waits (the DELETE, for a job looking at a row).
DELETE FROM ffx_budget_reservation AS r
WHERE
    r.partition_key = @partition_key::smallint
    AND r.budget_id = @budget_id::text;

-- name: LookAtReservations :one
-- LookAtReservations examines the leases of due reservations on a budget, deletes the reservations whose lease has
-- ended, and returns how many. The caller has locked the budget.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: L6 skips (rows FOR UPDATE, then the UPDATE and the DELETE); L2 skips (attempt rows FOR SHARE). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
due AS (
    -- The reservations, locked.
    SELECT
        r.ctid::tid AS row_id,
        r.partition_key,
        r.budget_id,
        r.execution_partition,
        r.execution_id,
        r.attempt_index,
        r.lease_epoch,
        r.dimensions_key
    FROM ffx_budget_reservation AS r
    WHERE
        r.partition_key = @partition_key::smallint
        AND r.budget_id = @budget_id::text
        AND (r.expires_at_ms <= (SELECT now_ms FROM clock)) IS TRUE
    FOR UPDATE SKIP LOCKED
),
-- include reservation_looked
SELECT count(*)::bigint AS dropped
FROM dropped;

-- name: ReleaseReservations :one
-- ReleaseReservations is LookAtReservations for all budgets, the longest due reservations first.
--
-- Used by: upkeep.ReleaseReservations.
-- Locks: L6 skips (rows FOR UPDATE, then the UPDATE and the DELETE); L2 skips (attempt rows FOR SHARE). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
due AS (
    -- The reservations, locked.
    SELECT
        r.ctid::tid AS row_id,
        r.partition_key,
        r.budget_id,
        r.execution_partition,
        r.execution_id,
        r.attempt_index,
        r.lease_epoch,
        r.dimensions_key
    FROM ffx_budget_reservation AS r
    WHERE r.expires_at_ms <= (SELECT now_ms FROM clock)
    ORDER BY r.expires_at_ms
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
),
-- include reservation_looked
SELECT count(*)::bigint AS dropped
FROM dropped;
