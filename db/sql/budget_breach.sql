-- name: InsertBudgetAdmissions :exec
-- InsertBudgetAdmissions stores admissions of executions, which the caller has locked, under budgets that cancel at a
-- breach. An execution admitted twice in a millisecond has one row.
--
-- Used by: upkeep.AdmitWaiting.
-- Locks: L6 new.
INSERT INTO ffx_budget_admission (
    partition_key, budget_id, execution_id, admitted_at_ms, execution_partition, due_at_ms
)
SELECT
    i.partition_key,
    i.budget_id,
    i.execution_id,
    c.now_ms,
    i.execution_partition,
    c.now_ms + @look_ms::bigint
FROM (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms) AS c
CROSS JOIN (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@budget_ids::text[]) AS budget_id,
        unnest(@execution_partitions::smallint[]) AS execution_partition,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
ON CONFLICT ON CONSTRAINT ffx_budget_admission_pkey DO NOTHING;

-- name: MarkBudgetAdmissions :execrows
-- MarkBudgetAdmissions makes the admissions under a budget due for a cancellation, except the ones already due. The
-- caller has locked the budget.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: L6 waits (the UPDATE, for a job looking at a row).
UPDATE ffx_budget_admission AS a
SET due_at_ms = 0
WHERE
    a.partition_key = @partition_key::smallint
    AND a.budget_id = @budget_id::text
    AND (a.due_at_ms > 0) IS TRUE;

-- name: ListBudgetCancels :many
-- ListBudgetCancels returns the next page of admissions due for a cancellation, in the order of their keys. budget_key is empty
-- for a budget without a key.
--
-- Used by: upkeep.CancelOverBudget.
-- Locks: none. Spans partitions.
SELECT
    a.partition_key,
    a.budget_id,
    a.execution_id,
    a.admitted_at_ms,
    a.execution_partition,
    coalesce((
        SELECT p.policy_json ->> 'ffx_key'
        FROM ff_budget_policy AS p
        WHERE
            p.partition_key = a.partition_key
            AND p.budget_id = a.budget_id
    ), '')::text AS budget_key
FROM ffx_budget_admission AS a
WHERE
    a.due_at_ms <= 0
    AND (
        (a.partition_key, a.budget_id, a.execution_id, a.admitted_at_ms)
        > (@after_partition_key::smallint, @after_budget_id::text, @after_execution_id::uuid, @after_admitted_at_ms::bigint)
    ) IS TRUE
ORDER BY
    a.due_at_ms,
    a.partition_key,
    a.budget_id,
    a.execution_id,
    a.admitted_at_ms
LIMIT @page_size::integer;

-- name: DropBudgetAdmissions :execrows
-- DropBudgetAdmissions deletes admissions due for a cancellation. Locked ones stay, and are examined again.
--
-- Used by: upkeep.CancelOverBudget.
-- Locks: L6 skips (rows FOR UPDATE, then the DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@budget_ids::text[]) AS budget_id,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@admitted_at_ms::bigint[]) AS admitted_at_ms
),
locked AS (
    SELECT
        t.row_id,
        i.partition_key,
        i.budget_id,
        i.execution_id,
        i.admitted_at_ms
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT a.ctid::tid AS row_id
        FROM ffx_budget_admission AS a
        WHERE
            a.partition_key = i.partition_key
            AND a.budget_id = i.budget_id
            AND a.execution_id = i.execution_id
            AND a.admitted_at_ms = i.admitted_at_ms
        FOR UPDATE SKIP LOCKED
    ) AS t
)
DELETE FROM ffx_budget_admission AS a
USING locked AS l
WHERE
    a.ctid = l.row_id
    AND a.partition_key = l.partition_key
    AND a.budget_id = l.budget_id
    AND a.execution_id = l.execution_id
    AND (a.admitted_at_ms = l.admitted_at_ms) IS TRUE;

-- name: LookAtAdmissions :one
-- LookAtAdmissions examines the due admissions, the longest due first, deletes the ones whose execution is no longer
-- admitted, and returns how many. The others are due again after look_ms.
--
-- Used by: upkeep.CancelOverBudget.
-- Locks: L6 skips (rows FOR UPDATE, then the UPDATE and the DELETE). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
due AS (
    -- The rows, locked.
    SELECT
        a.ctid::tid AS row_id,
        a.partition_key,
        a.budget_id,
        a.execution_id,
        a.admitted_at_ms,
        a.execution_partition
    FROM ffx_budget_admission AS a
    WHERE
        a.due_at_ms > 0
        AND a.due_at_ms <= (SELECT now_ms FROM clock)
    ORDER BY a.due_at_ms
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
),
looked AS MATERIALIZED (
    -- The due admissions, and whether their executions are still admitted.
    SELECT
        d.row_id,
        d.partition_key,
        d.budget_id,
        d.execution_id,
        d.admitted_at_ms,
        e.admitted IS TRUE AS admitted
    FROM due AS d
    LEFT JOIN LATERAL (
        SELECT t.ffx_admitted AS admitted
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = d.execution_partition
            AND t.execution_id = d.execution_id
        LIMIT 1
    ) AS e ON true
),
kept AS (
    -- The ones still admitted.
    UPDATE ffx_budget_admission AS a
    SET due_at_ms = (SELECT now_ms FROM clock) + @look_ms::bigint
    FROM looked AS l
    WHERE
        a.ctid = l.row_id
        AND a.partition_key = l.partition_key
        AND a.budget_id = l.budget_id
        AND a.execution_id = l.execution_id
        AND a.admitted_at_ms = l.admitted_at_ms
        AND l.admitted
    RETURNING 1 AS one
),
dropped AS (
    -- The others.
    DELETE FROM ffx_budget_admission AS a
    USING looked AS l
    WHERE
        a.ctid = l.row_id
        AND a.partition_key = l.partition_key
        AND a.budget_id = l.budget_id
        AND a.execution_id = l.execution_id
        AND a.admitted_at_ms = l.admitted_at_ms
        AND NOT l.admitted
    RETURNING 1 AS one
)
SELECT count(*)::bigint AS dropped
FROM dropped;
