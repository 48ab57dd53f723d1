-- name: ScanWaitingGates :many
-- ScanWaitingGates returns budgets and limits with waiting executions, each with one, in the order of their ids after a
-- position. The cost depends on the number of budgets and limits, not of executions.
--
-- Used by: upkeep.AdmitWaiting.
-- Locks: none. Spans partitions.
WITH RECURSIVE waiting AS (
    (
        SELECT
            e.gate_id,
            e.is_budget,
            e.partition_key,
            e.execution_id
        FROM ffx_waiting AS e
        WHERE e.gate_id > @after_gate_id::uuid
        ORDER BY e.gate_id
        LIMIT 1
    )
    UNION ALL
    SELECT
        n.gate_id,
        n.is_budget,
        n.partition_key,
        n.execution_id
    FROM waiting AS w
    CROSS JOIN LATERAL (
        SELECT
            e.gate_id,
            e.is_budget,
            e.partition_key,
            e.execution_id
        FROM ffx_waiting AS e
        WHERE e.gate_id > w.gate_id
        ORDER BY e.gate_id
        LIMIT 1
    ) AS n
)
SELECT
    w.gate_id::uuid AS gate_id,
    w.is_budget::boolean AS is_budget,
    w.partition_key::smallint AS partition_key,
    w.execution_id::uuid AS execution_id
FROM waiting AS w
LIMIT @page_size::integer;

-- name: EnsureGates :exec
-- EnsureGates creates missing rows for keys of limits, and for quota policies, each from an execution with the limit.
-- The execution's document has the names and keys of the limits at their places; a quota policy comes last and has
-- neither. The caller sorts by gate_id.
--
-- Used by: upkeep.AdmitWaiting.
-- Locks: gates waits (the INSERT, for another one of the same key).
INSERT INTO ffx_gate (partition_key, gate_id, namespace, limit_name, key, used_at_ms)
SELECT
    i.partition_key,
    i.gate_id,
    CASE WHEN e.named IS NULL THEN '' ELSE e.ffx_namespace END,
    e.named ->> 'name',
    coalesce(e.named ->> 'key', ''),
    ffx_now_ms(sqlc.narg(now_ms))
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@execution_partition_keys::smallint[]) AS execution_partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
CROSS JOIN LATERAL (
    SELECT
        t.ffx_namespace,
        t.raw_fields -> 'ffx_limits' -> (array_position(t.ffx_limit_ids, i.gate_id) - 1) AS named
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.execution_partition_key
        AND t.execution_id = i.execution_id
        -- Another creation may have replaced the limits.
        AND i.gate_id = ANY (t.ffx_limit_ids)
    LIMIT 1
) AS e
ON CONFLICT ON CONSTRAINT ffx_gate_pkey DO NOTHING;

-- name: EnsureKeys :exec
-- EnsureKeys creates missing rows for keys of limits. The caller sorts by gate_id.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: gates waits (the INSERT, for another one of the same key).
INSERT INTO ffx_gate (partition_key, gate_id, namespace, limit_name, key, used_at_ms)
SELECT
    unnest(@partition_keys::smallint[]),
    unnest(@gate_ids::uuid[]),
    unnest(@namespaces::text[]),
    unnest(@limit_names::text[]),
    unnest(@keys::text[]),
    ffx_now_ms(sqlc.narg(now_ms))
ON CONFLICT ON CONSTRAINT ffx_gate_pkey DO NOTHING;

-- name: TakeGates :many
-- TakeGates locks keys of limits, and quota policies, skipping locked ones, and returns their bounds and limits, and
-- whether executions wait there, and until when a key of an existing limit is held (0: never). Locked ones (taken is false) and missing ones (known is false) are returned too. A key
-- whose limit an operator changes now counts as locked. A quota policy is read under the lock, not from the snapshot.
-- The caller sorts by gate_id.
--
-- Used by: upkeep.AdmitWaiting, engine.CreateExecution, engine.CreateExecutions, upkeep.ForgetLimitKeys.
-- Locks: gates skips (rows FOR NO KEY UPDATE in array order); limits skips (advisory locks of the rules, shared).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@quota_partitions::smallint[]) AS quota_partition
    LIMIT cardinality(@gate_ids::uuid[])
)
SELECT
    i.gate_id::uuid AS gate_id,
    (g.gate_id IS NOT NULL AND num_nulls(g.limit_name, l.name) <> 1)::boolean AS taken,
    EXISTS (
        SELECT
        FROM ffx_gate AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.gate_id = i.gate_id
        OFFSET 0
    )::boolean AS known,
    EXISTS (
        SELECT
        FROM ffx_waiting AS w
        WHERE w.gate_id = i.gate_id
        OFFSET 0
    )::boolean AS awaited,
    coalesce(g.held, 0)::bigint AS held,
    coalesce(g.started, 0)::bigint AS started,
    coalesce(g.next_at_ms, 0)::bigint AS next_at_ms,
    coalesce(CASE WHEN l.units IS NOT NULL THEN g.hold_until_ms END, 0)::bigint AS hold_until_ms,
    coalesce(g.used_at_ms, 0)::bigint AS used_at_ms,
    coalesce(l.units, -1)::bigint AS limit_units,
    coalesce(l.window_ms, 0)::bigint AS limit_window_ms,
    coalesce(l.when_full, '')::text AS when_full,
    coalesce(g.limit_name, '')::text AS limit_name,
    coalesce(q.active_concurrency_cap, 0)::bigint AS quota_concurrent,
    coalesce(q.max_requests_per_window, 0)::bigint AS quota_starts,
    coalesce(q.requests_per_window_seconds, 0)::bigint AS quota_window_seconds,
    coalesce(l.changed_at_ms, q.updated_at_ms, 0)::bigint AS changed_at_ms,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM input AS i
LEFT JOIN LATERAL (
    SELECT
        t.gate_id,
        t.namespace,
        t.limit_name,
        t.held,
        t.started,
        t.next_at_ms,
        t.hold_until_ms,
        t.used_at_ms
    FROM ffx_gate AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.gate_id = i.gate_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS g ON true
LEFT JOIN LATERAL ffx_limit_in_force(g.namespace, g.limit_name) AS l ON true
LEFT JOIN LATERAL ffx_quota_in_force(i.quota_partition, CASE WHEN g.limit_name IS NULL THEN g.gate_id END) AS q ON true;

-- name: CountGates :many
-- CountGates counts the admissions of locked keys and quota policies. An admission is in use while its execution is
-- admitted and was not admitted again. An admission by a call is in use until released, or until its execution ends or
-- waits here. An admission counts as a start from the start of the execution until the window is over, and also while
-- the execution has not started. A start in the future counts as one of now. Admissions that count no more are deleted,
-- and the starts of the others are noted. window_ms of 0: starts don't count.
--
-- Settled admissions are not read: their units are in the row of the key, and PruneSettledUses follows in the same
-- round trip. At most a page of the open ones after a position is examined. whole: all were examined. Otherwise held
-- and started are the bounds less the units found free, and may be too high. looked_at_ms, looked_execution_id: where
-- the next page begins. changes: how many of the page were changed.
--
-- Used by: upkeep.AdmitWaiting, interop.CheckAdmission, engine.CreateExecution, engine.CreateExecutions, upkeep.ForgetLimitKeys.
-- Locks: gates held (DELETE and UPDATE of admissions, UPDATE of the keys).
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS MATERIALIZED (
    -- The keys, with the length of their windows.
    SELECT
        i.partition_key,
        i.gate_id,
        i.page_size,
        i.after_ms,
        i.after_execution_id,
        i.window_ms > 0 AS has_window,
        greatest(c.now_ms - i.window_ms, 0) AS window_from_ms
    FROM clock AS c
    CROSS JOIN (
        SELECT
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@gate_ids::uuid[]) AS gate_id,
            unnest(@window_ms::bigint[]) AS window_ms,
            unnest(@page_sizes::integer[]) AS page_size,
            unnest(@last_ms::bigint[]) AS after_ms,
            unnest(@last_execution_ids::uuid[]) AS after_execution_id
        LIMIT cardinality(@gate_ids::uuid[])
    ) AS i
),
judged AS MATERIALIZED (
    -- A page of the open ones: whether each is in use, and when the execution started. The deletion of an execution has
    -- noted the start; without a start, the admission's time counts.
    SELECT
        j.partition_key,
        j.gate_id,
        j.execution_id,
        j.admitted_at_ms,
        j.units,
        j.was_held,
        j.was_started_at_ms,
        j.held,
        -- 0: the window of one in use is over, which is noted once.
        CASE WHEN j.has_window AND j.started_at_ms <= j.window_from_ms THEN 0 ELSE j.started_at_ms END AS started_at_ms,
        coalesce(j.started_at_ms > j.window_from_ms, j.held) AS starts,
        -- Not in the millisecond of the admission: another one may still be added to the row.
        coalesce(NOT j.held AND j.started_at_ms > j.window_from_ms AND j.admitted_at_ms < j.now_ms, false) AS settled
    FROM (
        -- include gate_judged
        -- include gate_started
    ) AS j
),
dropped AS (
    -- The admissions that count no more.
    DELETE FROM ffx_gate_use AS u
    USING judged AS j
    WHERE
        u.partition_key = ANY (ARRAY[j.partition_key])
        AND u.gate_id = j.gate_id
        AND u.execution_id = j.execution_id
        AND u.admitted_at_ms = j.admitted_at_ms
        AND NOT j.held
        AND NOT j.starts
),
noted AS (
    -- The others, if changed.
    UPDATE ffx_gate_use AS u
    SET
        held = j.held,
        started_at_ms = j.started_at_ms,
        settled = j.settled
    FROM judged AS j
    WHERE
        u.partition_key = ANY (ARRAY[j.partition_key])
        AND u.gate_id = j.gate_id
        AND u.execution_id = j.execution_id
        AND u.admitted_at_ms = j.admitted_at_ms
        AND (j.held OR j.starts)
        AND (j.held, j.started_at_ms, j.settled) IS DISTINCT FROM (j.was_held, j.was_started_at_ms, false)
),
settled AS (
    -- The units of newly settled admissions, in the rows of the keys.
    UPDATE ffx_gate AS g
    SET settled = g.settled + n.units
    FROM (
        SELECT
            j.partition_key,
            j.gate_id,
            sum(j.units)::bigint AS units
        FROM judged AS j
        WHERE j.settled
        GROUP BY
            j.partition_key,
            j.gate_id
    ) AS n
    WHERE
        g.partition_key = ANY (ARRAY[n.partition_key])
        AND g.gate_id = n.gate_id
)
SELECT
    i.gate_id::uuid AS gate_id,
    (CASE WHEN w.whole THEN s.held ELSE greatest(g.held - s.given_back, 0) END)::bigint AS held,
    (CASE WHEN w.whole THEN g.settled + s.started ELSE greatest(g.started - s.over, 0) END)::bigint AS started,
    coalesce(s.first_start_ms, 0)::bigint AS first_start_ms,
    s.not_started::boolean AS not_started,
    w.whole::boolean AS whole,
    s.changes::bigint AS changes,
    coalesce(l.admitted_at_ms, -1)::bigint AS looked_at_ms,
    coalesce(l.execution_id, CAST('00000000-0000-0000-0000-000000000000' AS uuid))::uuid AS looked_execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.held,
        t.started,
        t.settled
    FROM ffx_gate AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.gate_id = i.gate_id
    LIMIT 1
) AS g
CROSS JOIN LATERAL (
    -- include gate_summed
) AS s
CROSS JOIN LATERAL (
    SELECT (i.after_ms < 0 AND s.found < i.page_size) AS whole
) AS w
LEFT JOIN LATERAL (
    -- The last of a full page.
    SELECT
        j.admitted_at_ms,
        j.execution_id
    FROM judged AS j
    WHERE
        s.found >= i.page_size
        AND j.gate_id = i.gate_id
    ORDER BY
        j.admitted_at_ms DESC,
        j.execution_id DESC
    LIMIT 1
) AS l ON true;

-- name: PruneSettledUses :many
-- PruneSettledUses deletes at most a page of the settled admissions of each locked key or quota policy whose windows
-- are over, and takes their units from the row of the key. A start in the future becomes one of now. units: the units
-- of the deleted ones, which CountGates has counted just before. first_start_ms: the start of the first settled one
-- that counts, 0: none. more_over: some whose windows are over may be left.
--
-- Used by: upkeep.AdmitWaiting, interop.CheckAdmission, engine.CreateExecution, engine.CreateExecutions, upkeep.ForgetLimitKeys.
-- Locks: gates held (DELETE and UPDATE of admissions, UPDATE of the keys).
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS MATERIALIZED (
    -- The keys, with the length of their windows.
    SELECT
        i.partition_key,
        i.gate_id,
        i.page_size,
        greatest(c.now_ms - i.window_ms, 0) AS window_from_ms
    FROM clock AS c
    CROSS JOIN (
        SELECT
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@gate_ids::uuid[]) AS gate_id,
            unnest(@window_ms::bigint[]) AS window_ms,
            unnest(@page_sizes::integer[]) AS page_size
        LIMIT cardinality(@gate_ids::uuid[])
    ) AS i
),
expired AS MATERIALIZED (
    -- The settled admissions whose windows are over.
    SELECT
        u.partition_key,
        u.gate_id,
        u.execution_id,
        u.admitted_at_ms,
        u.units
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.gate_id,
            t.execution_id,
            t.admitted_at_ms,
            t.units
        FROM ffx_gate_use AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.gate_id = i.gate_id
            AND t.started_at_ms <= i.window_from_ms
            AND t.settled
        ORDER BY t.started_at_ms
        LIMIT i.page_size
    ) AS u
),
ahead AS MATERIALIZED (
    -- The settled ones of the future.
    SELECT
        u.partition_key,
        u.gate_id,
        u.execution_id,
        u.admitted_at_ms,
        c.now_ms AS started_at_ms
    FROM clock AS c
    CROSS JOIN input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.gate_id,
            t.execution_id,
            t.admitted_at_ms
        FROM ffx_gate_use AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.gate_id = i.gate_id
            AND t.started_at_ms > c.now_ms
            AND t.settled
        ORDER BY t.started_at_ms
        LIMIT i.page_size
    ) AS u
),
dropped AS (
    -- The first, deleted.
    DELETE FROM ffx_gate_use AS u
    USING expired AS x
    WHERE
        u.partition_key = ANY (ARRAY[x.partition_key])
        AND u.gate_id = x.gate_id
        AND u.execution_id = x.execution_id
        AND u.admitted_at_ms = x.admitted_at_ms
),
noted AS (
    -- The second, with their new start.
    UPDATE ffx_gate_use AS u
    SET started_at_ms = x.started_at_ms
    FROM ahead AS x
    WHERE
        u.partition_key = ANY (ARRAY[x.partition_key])
        AND u.gate_id = x.gate_id
        AND u.execution_id = x.execution_id
        AND u.admitted_at_ms = x.admitted_at_ms
),
released AS (
    -- The keys, without the units of the first.
    UPDATE ffx_gate AS g
    SET settled = g.settled - n.units
    FROM (
        SELECT
            x.partition_key,
            x.gate_id,
            sum(x.units)::bigint AS units
        FROM expired AS x
        GROUP BY
            x.partition_key,
            x.gate_id
    ) AS n
    WHERE
        g.partition_key = ANY (ARRAY[n.partition_key])
        AND g.gate_id = n.gate_id
)
SELECT
    i.gate_id::uuid AS gate_id,
    o.units::bigint AS units,
    (o.found >= i.page_size)::boolean AS more_over,
    coalesce(f.first_start_ms, 0)::bigint AS first_start_ms
FROM clock AS c
CROSS JOIN input AS i
CROSS JOIN LATERAL (
    SELECT
        count(*) AS found,
        coalesce(sum(x.units), 0) AS units
    FROM expired AS x
    WHERE x.gate_id = i.gate_id
) AS o
LEFT JOIN LATERAL (
    -- The first settled one that counts.
    SELECT least(t.started_at_ms, c.now_ms) AS first_start_ms
    FROM ffx_gate_use AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.gate_id = i.gate_id
        AND t.started_at_ms > i.window_from_ms
        AND t.settled
    ORDER BY t.started_at_ms
    LIMIT 1
) AS f ON true;

-- name: TakeWaiting :many
-- TakeWaiting locks executions waiting at budgets and limits, skipping locked ones: of each at most so many, in the
-- order of claims.
--
-- Used by: upkeep.AdmitWaiting.
-- Locks: L1 skips (rows FOR NO KEY UPDATE). Spans partitions.
WITH input AS (
    SELECT
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@counts::integer[]) AS executions
)
SELECT
    i.gate_id::uuid AS gate_id,
    e.partition_key,
    e.execution_id,
    e.lane_id,
    e.priority,
    e.created_at_ms,
    e.ffx_budget_ids,
    e.ffx_limit_ids,
    e.ffx_limit_units
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.execution_id,
        x.lane_id,
        x.priority,
        x.created_at_ms,
        x.ffx_budget_ids,
        x.ffx_limit_ids,
        x.ffx_limit_units
    -- include waiting_line: gate_id = i.gate_id
    LIMIT i.executions
) AS e;

-- name: AdmitExecutions :exec
-- AdmitExecutions makes locked executions claimable.
--
-- Used by: upkeep.AdmitWaiting.
-- Locks: L1 held (UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
UPDATE ff_exec_core AS e
SET
    -- include set_admitted
FROM input AS i
WHERE
    e.partition_key = ANY (ARRAY[i.partition_key])
    AND e.execution_id = i.execution_id;

-- name: MoveWaiting :exec
-- MoveWaiting makes executions the caller has locked wait at another budget or limit.
--
-- Used by: upkeep.AdmitWaiting.
-- Locks: L1 held (UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@are_budgets::boolean[]) AS is_budget
)
UPDATE ff_exec_core AS e
SET
    eligibility_state = CASE WHEN i.is_budget THEN 'blocked_by_budget' ELSE 'blocked_by_quota' END,
    blocking_reason = CASE WHEN i.is_budget THEN 'waiting_for_budget' ELSE 'waiting_for_quota' END,
    ffx_gate_id = i.gate_id
FROM input AS i
WHERE
    e.partition_key = ANY (ARRAY[i.partition_key])
    AND e.execution_id = i.execution_id;

-- name: InsertGateUses :exec
-- InsertGateUses stores admissions at locked keys and quota policies. An execution admitted again in the millisecond of
-- its earlier, released admission has one row for both: the starts add up if the key has a window. An admission by a
-- call counts as a start at once.
--
-- Used by: upkeep.AdmitWaiting, interop.CheckAdmission, engine.CreateExecution, engine.CreateExecutions.
-- Locks: gates held (INSERT and UPDATE of admissions).
INSERT INTO ffx_gate_use AS u (
    partition_key, gate_id, execution_id, admitted_at_ms, execution_partition_key, units, held, started_at_ms, by_caller
)
SELECT
    unnest(@partition_keys::smallint[]),
    unnest(@gate_ids::uuid[]),
    unnest(@execution_ids::uuid[]),
    ffx_now_ms(sqlc.narg(now_ms)),
    unnest(@execution_partition_keys::smallint[]),
    unnest(@units::bigint[]),
    true,
    CASE WHEN sqlc.arg(by_caller)::boolean THEN ffx_now_ms(sqlc.narg(now_ms)) END,
    sqlc.arg(by_caller)::boolean
ON CONFLICT ON CONSTRAINT ffx_gate_use_pkey DO UPDATE
SET
    units = excluded.units + CASE WHEN u.gate_id = ANY (@windowed_gate_ids::uuid[]) THEN u.units ELSE 0 END,
    held = true,
    started_at_ms = excluded.started_at_ms,
    by_caller = excluded.by_caller,
    settled = false;

-- name: RaiseGates :exec
-- RaiseGates stores the bounds of locked keys and quota policies after a pass, and when their windows have units again.
--
-- Used by: upkeep.AdmitWaiting, interop.CheckAdmission, engine.CreateExecution, engine.CreateExecutions, upkeep.ForgetLimitKeys.
-- Locks: gates held (UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@held::bigint[]) AS held,
        unnest(@started::bigint[]) AS started,
        unnest(@next_at_ms::bigint[]) AS next_at_ms,
        unnest(@used::boolean[]) AS used
    LIMIT cardinality(@gate_ids::uuid[])
)
UPDATE ffx_gate AS g
SET
    held = i.held,
    started = i.started,
    next_at_ms = nullif(i.next_at_ms, 0),
    used_at_ms = CASE WHEN i.used THEN ffx_now_ms(sqlc.narg(now_ms)) ELSE g.used_at_ms END
FROM input AS i
WHERE
    g.partition_key = ANY (ARRAY[i.partition_key])
    AND g.gate_id = i.gate_id;

-- name: ReadBudgetsInUse :many
-- ReadBudgetsInUse returns the policies, the usage and the reservations of budgets. A missing budget has no row.
--
-- Used by: upkeep.AdmitWaiting.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@budget_ids::text[]) AS budget_id
)
SELECT
    b.budget_id,
    b.policy,
    u.dimensions::text[] AS dimensions,
    u.amounts::bigint[] AS amounts,
    v.dimensions::text[] AS reserved_dimensions,
    v.amounts::bigint[] AS reserved_amounts
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.budget_id,
        t.policy_json::text AS policy
    FROM ff_budget_policy AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.budget_id = i.budget_id
    LIMIT 1
) AS b
-- include budget_usage
;

-- name: ListSurplus :many
-- ListSurplus returns the executions to cancel at full keys of limits: the waiting ones not in but, except the newest
-- with keep_newest; or with cancel_running as many admitted ones as needed to free the given units, the longest
-- admitted first. At most 1,000 for each key.
--
-- Used by: upkeep.AdmitWaiting.
-- Locks: none. Spans partitions.
WITH input AS (
    -- The keys, whose rows the caller has locked.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@when_full::text[]) AS when_full,
        unnest(@units::bigint[]) AS units
)
SELECT
    i.gate_id::uuid AS gate_id,
    w.partition_key::smallint AS partition_key,
    w.execution_id::uuid AS execution_id,
    true AS waits
FROM input AS i
CROSS JOIN LATERAL (
    -- Their waiting executions.
    SELECT
        q.partition_key,
        q.execution_id,
        row_number() OVER (ORDER BY q.created_at_ms DESC, q.execution_id DESC) = 1 AS newest
    FROM ffx_waiting AS q
    CROSS JOIN LATERAL (
        SELECT
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = q.partition_key
            AND t.execution_id = q.execution_id
            AND t.ffx_gate_id = i.gate_id
        LIMIT 1
    ) AS e
    WHERE
        q.gate_id = i.gate_id
        AND NOT q.execution_id = ANY (@but::uuid[])
    LIMIT 1000
) AS w
WHERE
    i.when_full = 'cancel_new'
    OR i.when_full = 'keep_newest' AND NOT w.newest
UNION ALL
SELECT
    n.gate_id::uuid,
    h.execution_partition_key::smallint,
    h.execution_id::uuid,
    false
FROM input AS n
CROSS JOIN LATERAL (
    -- The admitted executions, with the units of all admitted earlier.
    SELECT
        u.execution_partition_key,
        u.execution_id,
        sum(u.units) OVER (ORDER BY u.admitted_at_ms, u.execution_id) - u.units AS before
    FROM ffx_gate_use AS u
    CROSS JOIN LATERAL (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = u.execution_partition_key
            AND e.execution_id = u.execution_id
            AND e.ffx_admitted
        LIMIT 1
    ) AS e
    WHERE
        u.partition_key = n.partition_key
        AND u.gate_id = n.gate_id
        AND u.held
    LIMIT 1000
) AS h
WHERE
    n.when_full = 'cancel_running'
    AND h.before < n.units;
