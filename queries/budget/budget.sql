-- name: InsertBudget :execrows
-- InsertBudget creates a budget. No row: the budget exists.
--
-- Used by: budget.Create.
-- Locks: L6 waits (the INSERT, for another one of the same id).
INSERT INTO ff_budget_policy (
    partition_key, budget_id, policy_json, created_at_ms, updated_at_ms, scope_type, scope_id, enforcement_mode,
    next_reset_at_ms
)
SELECT
    @partition_key::smallint,
    @budget_id::text,
    sqlc.arg(policy)::text::jsonb,
    c.now_ms,
    c.now_ms,
    @scope_type::text,
    @scope_id::text,
    @enforcement_mode::text,
    CASE
        WHEN sqlc.arg(reset_interval_ms)::bigint > 0
            THEN least(c.now_ms::numeric + sqlc.arg(reset_interval_ms)::bigint, 9223372036854775807)::bigint
    END
FROM (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms) AS c
ON CONFLICT ON CONSTRAINT ff_budget_policy_pkey DO NOTHING;

-- name: LockBudget :one
-- LockBudget locks a budget and returns the policy, an empty text if the budget does not exist.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle, budget.Release, budget.Reset,
-- budget.Delete.
-- Locks: L6 waits (the row FOR NO KEY UPDATE).
SELECT coalesce(b.policy_json::text, '')::text AS policy
FROM (SELECT 1) AS one
LEFT JOIN LATERAL (
    SELECT t.policy_json
    FROM ff_budget_policy AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.budget_id = @budget_id::text
    FOR NO KEY UPDATE
) AS b ON true;

-- name: ReuseBudgetKeys :many
-- ReuseBudgetKeys takes the new and expired deduplication keys of reports, and returns the taken ones. The others are
-- locked too, so they stay until the transaction ends. The caller sorts the keys.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: L6 waits (in array order, for rows and for keys another transaction inserts).
WITH input AS (
    SELECT
        unnest(@keys::text[]) AS key
),
clock AS (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms)
INSERT INTO ff_budget_usage_dedup AS d (partition_key, dedup_key, outcome_json, applied_at_ms, expires_at_ms)
SELECT
    @partition_key::smallint,
    i.key,
    '{}',
    c.now_ms,
    c.now_ms + @ttl_ms::bigint
FROM clock AS c
CROSS JOIN input AS i
ON CONFLICT ON CONSTRAINT ff_budget_usage_dedup_pkey DO UPDATE
SET
    outcome_json = excluded.outcome_json,
    applied_at_ms = excluded.applied_at_ms,
    expires_at_ms = excluded.expires_at_ms
WHERE d.expires_at_ms <= excluded.applied_at_ms
RETURNING d.dedup_key;

-- name: ReadBudgetKeys :many
-- ReadBudgetKeys returns the outcomes of deduplication keys. One the transaction has just taken has an empty object.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@keys::text[]) AS key
)
SELECT
    d.dedup_key,
    d.outcome_json::text AS outcome
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.dedup_key,
        t.outcome_json
    FROM ff_budget_usage_dedup AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.dedup_key = i.key
    LIMIT 1
) AS d;

-- name: LockBudgetUsage :many
-- LockBudgetUsage locks the usage of a budget in some dimensions and returns the usage in array order, with the time. A
-- dimension without usage has 0, and so has every dimension if the budget does not exist: a missing row is not locked,
-- but added by AddBudgetUsage, which locks in the same order. The caller sorts the dimensions and has locked the
-- budget.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: L6 waits (rows FOR NO KEY UPDATE in array order).
WITH input AS (
    SELECT
        unnest(@dimensions::text[]) AS dimension
),
clock AS (
    SELECT
        ffx_now_ms(sqlc.narg(now_ms)) AS now_ms,
        EXISTS (
            SELECT
            FROM ff_budget_policy AS b
            WHERE
                b.partition_key = @partition_key::smallint
                AND b.budget_id = @budget_id::text
        ) AS limited
)
SELECT
    i.dimension::text AS dimension,
    coalesce(u.current_value, 0)::bigint AS current_value,
    c.now_ms::bigint AS now_ms
FROM clock AS c
CROSS JOIN input AS i
LEFT JOIN LATERAL (
    SELECT t.current_value
    FROM ff_budget_usage AS t
    WHERE
        c.limited
        AND t.partition_key = @partition_key::smallint
        AND t.budget_id = @budget_id::text
        AND t.dimensions_key = i.dimension
    FOR NO KEY UPDATE
) AS u ON true;

-- name: AddBudgetUsage :exec
-- AddBudgetUsage adds to the usage of a budget, up to the largest value of the column. The caller sorts the dimensions.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: L6 waits (in array order, for rows and for dimensions another transaction inserts).
WITH input AS (
    SELECT
        unnest(@dimensions::text[]) AS dimension,
        unnest(@amounts::bigint[]) AS amount
)
INSERT INTO ff_budget_usage AS u (partition_key, budget_id, dimensions_key, current_value, updated_at_ms)
SELECT
    @partition_key::smallint,
    @budget_id::text,
    i.dimension,
    i.amount,
    @at_ms::bigint
FROM input AS i
ON CONFLICT ON CONSTRAINT ff_budget_usage_pkey DO UPDATE
SET
    current_value = least(u.current_value::numeric + excluded.current_value, 9223372036854775807)::bigint,
    updated_at_ms = excluded.updated_at_ms;

-- name: AddBudgetUsageOf :exec
-- AddBudgetUsageOf adds to the ledger of a budget: the amounts executions have spent. The caller sorts by execution and
-- dimension.
--
-- Used by: budget.RecordSpend.
-- Locks: L6 waits (in array order, for rows and for inserts of another transaction).
WITH input AS (
    SELECT
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@dimensions::text[]) AS dimension,
        unnest(@amounts::bigint[]) AS amount
)
INSERT INTO ff_budget_usage_by_exec AS x (partition_key, budget_id, execution_id, dimensions_key, delta_total, updated_at_ms)
SELECT
    @partition_key::smallint,
    @budget_id::text,
    i.execution_id,
    i.dimension,
    i.amount,
    @at_ms::bigint
FROM input AS i
ON CONFLICT ON CONSTRAINT ff_budget_usage_by_exec_pkey DO UPDATE
SET
    delta_total = least(x.delta_total::numeric + excluded.delta_total, 9223372036854775807)::bigint,
    updated_at_ms = excluded.updated_at_ms;

-- name: CountBudgetBreaches :exec
-- CountBudgetBreaches adds to the counters of a locked budget, and notes the last hard breach if there is one. Without
-- breaches nothing changes, but a later lock of the budget from an older snapshot fails: at REPEATABLE READ new
-- reservations would not be seen.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: L6 held (the UPDATE).
UPDATE ff_budget_policy AS b
SET
    breach_count = b.breach_count + @hard::bigint,
    soft_breach_count = b.soft_breach_count + @soft::bigint,
    last_breach_at_ms = CASE WHEN @hard::bigint > 0 THEN @at_ms::bigint ELSE b.last_breach_at_ms END,
    last_breach_dim = CASE WHEN @hard::bigint > 0 THEN @dimension::text ELSE b.last_breach_dim END,
    updated_at_ms = CASE WHEN sqlc.arg(hard)::bigint + sqlc.arg(soft)::bigint > 0 THEN @at_ms::bigint ELSE b.updated_at_ms END
WHERE
    b.partition_key = @partition_key::smallint
    AND b.budget_id = @budget_id::text;

-- name: StoreBudgetOutcomes :exec
-- StoreBudgetOutcomes stores the outcomes of reports under the deduplication keys their transaction has taken.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: L6 held (the UPDATE).
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        unnest(@keys::text[]) AS key,
        unnest(@outcomes::text[]) AS outcome
)
UPDATE ff_budget_usage_dedup AS d
SET outcome_json = i.outcome::jsonb
FROM input AS i
WHERE
    d.partition_key = i.partition_key
    AND d.dedup_key = i.key;

-- name: DropBudgetKeys :exec
-- DropBudgetKeys deletes deduplication keys the transaction has taken for reports it then did not count.
--
-- Used by: budget.Report, budget.RecordSpend, budget.Reserve, budget.Settle.
-- Locks: L6 held (the DELETE).
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        unnest(@keys::text[]) AS key
)
DELETE FROM ff_budget_usage_dedup AS d
USING input AS i
WHERE
    d.partition_key = i.partition_key
    AND d.dedup_key = i.key;

-- name: LockBudgetUsageOf :many
-- LockBudgetUsageOf locks the usage of a budget in the dimensions in which an execution has spent. The caller has locked
-- the budget.
--
-- Used by: budget.Release.
-- Locks: L6 waits (rows FOR NO KEY UPDATE by dimension).
SELECT u.dimensions_key
FROM (
    SELECT t.dimensions_key
    FROM ff_budget_usage_by_exec AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.budget_id = @budget_id::text
        AND t.execution_id = @execution_id::uuid
    ORDER BY t.dimensions_key COLLATE "C"
) AS x
CROSS JOIN LATERAL (
    SELECT t.dimensions_key
    FROM ff_budget_usage AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.budget_id = @budget_id::text
        AND t.dimensions_key = x.dimensions_key
    FOR NO KEY UPDATE
) AS u;

-- name: ReleaseBudget :many
-- ReleaseBudget deletes the spends of an execution in some dimensions from the ledger of a budget and takes the amounts
-- off the budget's usage, down to 0. Returns the amounts of the ledger. The caller has locked the budget and the usage
-- in the given dimensions: a spend added meanwhile in another one stays.
--
-- Used by: budget.Release.
-- Locks: L6 held (the DELETE, the UPDATE).
WITH dropped AS (
    DELETE FROM ff_budget_usage_by_exec AS x
    WHERE
        x.partition_key = @partition_key::smallint
        AND x.budget_id = @budget_id::text
        AND x.execution_id = @execution_id::uuid
        AND x.dimensions_key = ANY (@dimensions::text[])
    RETURNING
        x.dimensions_key,
        x.delta_total
),
reduced AS (
    UPDATE ff_budget_usage AS u
    SET
        current_value = greatest(u.current_value - d.delta_total, 0),
        updated_at_ms = ffx_now_ms(sqlc.narg(now_ms))
    FROM dropped AS d
    WHERE
        u.partition_key = @partition_key::smallint
        AND u.budget_id = @budget_id::text
        AND u.dimensions_key = d.dimensions_key
    RETURNING 1 AS one
)
SELECT
    d.dimensions_key,
    d.delta_total
FROM dropped AS d;

-- name: TakeDueBudget :one
-- TakeDueBudget locks a budget whose reset, or look at its retention, is due and returns the policy and the time. No
-- row: the budget is locked, or no longer due.
--
-- Used by: upkeep.ResetBudgets.
-- Locks: L6 skips (the row FOR NO KEY UPDATE).
SELECT
    b.policy_json::text AS policy,
    b.next_reset_at_ms::bigint AS due_ms,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM ff_budget_policy AS b
WHERE
    b.partition_key = @partition_key::smallint
    AND b.budget_id = @budget_id::text
    AND b.next_reset_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
FOR NO KEY UPDATE SKIP LOCKED;

-- name: GetBudgetUse :one
-- GetBudgetUse returns when a locked budget was last used, and whether the budget is in use: amounts are reserved, or
-- an execution waits there or is noted as admitted.
--
-- Used by: upkeep.ResetBudgets.
-- Locks: none.
SELECT
    greatest(b.updated_at_ms, u.updated_at_ms)::bigint AS used_at_ms,
    (r.found OR w.found OR a.found)::boolean AS in_use
FROM ff_budget_policy AS b
CROSS JOIN LATERAL (
    SELECT max(t.updated_at_ms) AS updated_at_ms
    FROM ff_budget_usage AS t
    WHERE
        t.partition_key = b.partition_key
        AND t.budget_id = b.budget_id
) AS u
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT
        FROM ffx_budget_reservation AS t
        WHERE
            t.partition_key = b.partition_key
            AND t.budget_id = b.budget_id
    ) AS found
) AS r
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT
        FROM ffx_waiting AS t
        WHERE t.gate_id = @gate_id::uuid
    ) AS found
) AS w
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT
        FROM ffx_budget_admission AS t
        WHERE
            t.partition_key = b.partition_key
            AND t.budget_id = b.budget_id
    ) AS found
) AS a
WHERE
    b.partition_key = @partition_key::smallint
    AND b.budget_id = @budget_id::text;

-- name: PostponeBudget :exec
-- PostponeBudget notes when to look again at a locked budget not deleted yet.
--
-- Used by: upkeep.ResetBudgets.
-- Locks: L6 held (the UPDATE).
UPDATE ff_budget_policy AS b
SET next_reset_at_ms = @next_ms::bigint
WHERE
    b.partition_key = @partition_key::smallint
    AND b.budget_id = @budget_id::text;

-- name: ScanDueBudgets :many
-- ScanDueBudgets returns budgets whose reset is due, in the order of the due times, after a position.
--
-- Used by: upkeep.ResetBudgets.
-- Locks: none. Spans partitions.
SELECT
    b.partition_key,
    b.budget_id,
    b.next_reset_at_ms::bigint AS due_ms
FROM ff_budget_policy AS b
WHERE
    b.next_reset_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    AND b.next_reset_at_ms >= @after_ms::bigint
    AND (b.next_reset_at_ms, b.partition_key, b.budget_id COLLATE "C") > (@after_ms::bigint, @after_partition::smallint, @after_id::text)
ORDER BY
    b.next_reset_at_ms,
    b.partition_key,
    b.budget_id COLLATE "C"
LIMIT @page_size::integer;

-- name: ResetBudgetUsage :exec
-- ResetBudgetUsage sets the usage of a locked budget to 0 in every dimension.
--
-- Used by: budget.Reset, upkeep.ResetBudgets.
-- Locks: L6 waits (rows FOR NO KEY UPDATE by dimension, then the UPDATE).
WITH locked AS (
    SELECT t.dimensions_key
    FROM ff_budget_usage AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.budget_id = @budget_id::text
    ORDER BY t.dimensions_key COLLATE "C"
    FOR NO KEY UPDATE
)
UPDATE ff_budget_usage AS u
SET
    current_value = 0,
    last_reset_at_ms = @at_ms::bigint,
    updated_at_ms = @at_ms::bigint
FROM locked AS l
WHERE
    u.partition_key = @partition_key::smallint
    AND u.budget_id = @budget_id::text
    AND u.dimensions_key = l.dimensions_key;

-- name: DropBudgetLedger :exec
-- DropBudgetLedger deletes the ledger of a locked budget.
--
-- Used by: budget.Reset, upkeep.ResetBudgets, budget.Delete.
-- Locks: L6 held (the DELETE).
DELETE FROM ff_budget_usage_by_exec AS x
WHERE
    x.partition_key = @partition_key::smallint
    AND x.budget_id = @budget_id::text;

-- name: MarkBudgetReset :exec
-- MarkBudgetReset forgets the last breach of a locked budget and stores the next reset, 0 for none.
--
-- Used by: budget.Reset, upkeep.ResetBudgets.
-- Locks: L6 held (the UPDATE).
UPDATE ff_budget_policy AS b
SET
    last_breach_at_ms = NULL,
    last_breach_dim = NULL,
    next_reset_at_ms = nullif(@next_ms::bigint, 0),
    updated_at_ms = @at_ms::bigint
WHERE
    b.partition_key = @partition_key::smallint
    AND b.budget_id = @budget_id::text;

-- name: SetBudget :execrows
-- SetBudget replaces the policy and the labels of a budget, except the key. A reset in the same interval stays. No row:
-- the budget does not exist.
--
-- Used by: budget.Set.
-- Locks: L6 waits (the UPDATE).
UPDATE ff_budget_policy AS b
SET
    policy_json = sqlc.arg(policy)::text::jsonb || jsonb_strip_nulls(jsonb_build_object(
        'ffx_key', b.policy_json -> 'ffx_key', 'ffx_namespace', b.policy_json -> 'ffx_namespace'
    )),
    scope_type = @scope_type::text,
    scope_id = @scope_id::text,
    enforcement_mode = @enforcement_mode::text,
    next_reset_at_ms = CASE
        WHEN sqlc.arg(reset_interval_ms)::bigint <= 0 THEN NULL
        WHEN
            b.next_reset_at_ms IS NOT NULL
            AND b.policy_json -> 'reset_interval_ms' = to_jsonb(sqlc.arg(reset_interval_ms)::bigint)
            THEN b.next_reset_at_ms
        ELSE least(s.now_ms::numeric + sqlc.arg(reset_interval_ms)::bigint, 9223372036854775807)::bigint
    END,
    updated_at_ms = s.now_ms
FROM (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms) AS s
WHERE
    b.partition_key = @partition_key::smallint
    AND b.budget_id = @budget_id::text;

-- name: DropBudgetUsage :exec
-- DropBudgetUsage deletes the usage of a locked budget.
--
-- Used by: budget.Delete, upkeep.ResetBudgets.
-- Locks: L6 waits (rows FOR UPDATE by dimension, then the DELETE).
WITH locked AS (
    SELECT t.dimensions_key
    FROM ff_budget_usage AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.budget_id = @budget_id::text
    ORDER BY t.dimensions_key COLLATE "C"
    FOR UPDATE
)
DELETE FROM ff_budget_usage AS u
USING locked AS l
WHERE
    u.partition_key = @partition_key::smallint
    AND u.budget_id = @budget_id::text
    AND u.dimensions_key = l.dimensions_key;

-- name: DropBudget :exec
-- DropBudget deletes a locked budget.
--
-- Used by: budget.Delete, upkeep.ResetBudgets.
-- Locks: L6 held (the DELETE).
DELETE FROM ff_budget_policy AS b
WHERE
    b.partition_key = @partition_key::smallint
    AND b.budget_id = @budget_id::text;

-- name: PruneBudgetKeys :execrows
-- PruneBudgetKeys deletes expired deduplication keys of reports.
--
-- Used by: upkeep.PruneUsageKeys.
-- Locks: L6 skips (FOR UPDATE, then the DELETE). Spans partitions.
DELETE FROM ff_budget_usage_dedup AS k
USING (
    SELECT
        d.ctid::tid AS row_id,
        d.partition_key,
        d.dedup_key
    FROM ff_budget_usage_dedup AS d
    WHERE d.expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ORDER BY d.expires_at_ms
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
) AS d
WHERE
    k.ctid = d.row_id
    AND (k.partition_key = d.partition_key) IS TRUE
    AND (k.dedup_key = d.dedup_key) IS TRUE;

-- name: GetBudget :one
-- GetBudget returns a budget with its usage in all dimensions. No row: the budget does not exist.
--
-- Used by: budget.Get, budget.Create.
-- Locks: none.
SELECT
    -- include budget_columns
FROM ff_budget_policy AS b
-- include budget_usage
WHERE
    b.partition_key = @partition_key::smallint
    AND b.budget_id = @budget_id::text;

-- name: ListBudgets :many
-- ListBudgets returns a page of budgets with their usage, by partition and id.
--
-- Used by: budget.All, budget.All.
-- Locks: none. Spans partitions.
SELECT
    -- include budget_columns
FROM ff_budget_policy AS b
-- include budget_usage
WHERE (b.partition_key, b.budget_id) > (@after_partition::smallint, @after_id::text)
ORDER BY
    b.partition_key,
    b.budget_id
LIMIT @page_size::integer;

-- name: ListBudgetPartitions :many
-- ListBudgetPartitions returns a sample of budgets and of quota policies with the partitions of their rows.
--
-- Used by: engine.Prepare.
-- Locks: none. Spans partitions.
(
    SELECT
        b.partition_key,
        b.budget_id AS id,
        false AS quota
    FROM ff_budget_policy AS b
    LIMIT @sample::integer
)
UNION ALL
(
    SELECT
        q.partition_key,
        q.quota_policy_id AS id,
        true AS quota
    FROM ff_quota_policy AS q
    LIMIT @sample::integer
);
