-- name: ListLimitRules :many
-- ListLimitRules returns the declared rules of limits. A missing limit has no row.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, schedule.Put, schedule.Declare.
-- Locks: none.
SELECT
    l.namespace,
    l.name,
    l.declared_units,
    coalesce(l.declared_window_ms, 0)::bigint AS declared_window_ms,
    l.when_full,
    -- Whether the row is older than the caller's transaction, and so stays after a rollback.
    coalesce(l.declared_in < pg_current_xact_id_if_assigned()::text::bigint, true)::boolean AS lasting
FROM (
    SELECT
        unnest(@namespaces::text[]) AS namespace,
        unnest(@names::text[]) AS name
) AS i
CROSS JOIN LATERAL (
    SELECT
        t.namespace,
        t.name,
        t.declared_units,
        t.declared_window_ms,
        t.when_full,
        t.declared_in
    FROM ffx_limit AS t
    WHERE
        t.namespace = i.namespace
        AND t.name = i.name
    LIMIT 1
) AS l;

-- name: DeclareLimits :exec
-- DeclareLimits creates limits, or changes their declared rules. An operator's setting stays in force, unless a rate becomes a
-- concurrency or the reverse.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, schedule.Put, schedule.Declare, limit.Declare.
-- Locks: limits waits (in array order). The caller sorts by namespace and name.
WITH clock AS MATERIALIZED (
    -- The time of the declaration.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    -- The limits, in lock order.
    SELECT
        unnest(@namespaces::text[]) AS namespace,
        unnest(@names::text[]) AS name,
        unnest(@units::bigint[]) AS units,
        unnest(@windows_ms::bigint[]) AS window_ms,
        unnest(@when_full::text[]) AS when_full
),
declared AS (
    -- The new and the changed limits.
    INSERT INTO ffx_limit AS l (
        namespace, name, units, window_ms, when_full, declared_units, declared_window_ms, changed_at_ms, declared_in
    )
    SELECT
        i.namespace,
        i.name,
        i.units,
        nullif(i.window_ms, 0),
        i.when_full,
        i.units,
        nullif(i.window_ms, 0),
        c.now_ms,
        pg_current_xact_id()::text::bigint
    FROM input AS i
    CROSS JOIN clock AS c
    ON CONFLICT (namespace, name) DO UPDATE
    SET
        units = CASE
            WHEN l.set_at_ms IS NULL OR (l.window_ms IS NULL) <> (excluded.window_ms IS NULL) THEN excluded.units
            ELSE l.units
        END,
        window_ms = CASE
            WHEN l.set_at_ms IS NULL OR (l.window_ms IS NULL) <> (excluded.window_ms IS NULL) THEN excluded.window_ms
            ELSE l.window_ms
        END,
        when_full = excluded.when_full,
        declared_units = excluded.declared_units,
        declared_window_ms = excluded.declared_window_ms,
        set_at_ms = CASE WHEN (l.window_ms IS NULL) = (excluded.window_ms IS NULL) THEN l.set_at_ms END,
        changed_at_ms = excluded.changed_at_ms,
        declared_in = excluded.declared_in,
        changes = l.changes + 1
    WHERE
        (l.declared_units, l.declared_window_ms, l.when_full)
        IS DISTINCT FROM (excluded.declared_units, excluded.declared_window_ms, excluded.when_full)
    RETURNING
        l.namespace,
        l.name,
        l.changes,
        l.changed_at_ms,
        l.units,
        l.window_ms,
        l.when_full
),
forgotten AS (
    -- Their changes before the last hundred.
    DELETE FROM ffx_limit_change AS o
    USING declared AS d
    WHERE
        o.namespace = d.namespace
        AND o.name = d.name
        AND o.change <= d.changes - 100
)
INSERT INTO ffx_limit_change (namespace, name, change, changed_at_ms, how, units, window_ms, when_full, changed_by)
SELECT
    d.namespace,
    d.name,
    d.changes,
    d.changed_at_ms,
    'declared',
    d.units,
    d.window_ms,
    d.when_full,
    ''
FROM declared AS d;

-- name: SetLimit :one
-- SetLimit sets the rule in force of a limit, or with units of -1 restores the declared one. No row: the limit does not
-- exist. fits is false if a window was given to a limit without one; then nothing changes.
--
-- Used by: limit.Set, limit.Reset.
-- Locks: limits waits (the advisory lock of the rule, for transactions that admit by the rule, then the row: UPDATE).
WITH held AS MATERIALIZED (
    -- The limit, locked after the end of all transactions that admit by the present rule, and the time then.
    SELECT
        t.namespace,
        t.name,
        t.fits,
        ffx_now_locked_ms(sqlc.narg(now_ms)) AS now_ms
    FROM (SELECT pg_advisory_xact_lock(ffx_limit_key(@namespace, @name)) IS NOT NULL AS alone OFFSET 0) AS a
    CROSS JOIN LATERAL (
        SELECT
            l.namespace,
            l.name,
            l.declared_window_ms IS NOT NULL OR sqlc.arg(window_ms)::bigint = 0 AS fits
        FROM ffx_limit AS l
        WHERE
            a.alone
            AND l.namespace = @namespace
            AND l.name = @name
        FOR NO KEY UPDATE
    ) AS t
),
changed AS (
    -- The limit, if the window fits.
    UPDATE ffx_limit AS l
    SET
        units = CASE WHEN sqlc.arg(units)::bigint < 0 THEN l.declared_units ELSE sqlc.arg(units)::bigint END,
        window_ms = coalesce(nullif(sqlc.arg(window_ms)::bigint, 0), l.declared_window_ms),
        set_at_ms = CASE WHEN sqlc.arg(units)::bigint < 0 THEN NULL ELSE h.now_ms END,
        changed_at_ms = h.now_ms,
        changes = l.changes + 1
    FROM held AS h
    WHERE
        l.namespace = h.namespace
        AND l.name = h.name
        AND h.fits
    RETURNING
        l.namespace,
        l.name,
        l.changes,
        l.changed_at_ms,
        l.units,
        l.window_ms,
        l.when_full
),
forgotten AS (
    -- The changes before the last hundred.
    DELETE FROM ffx_limit_change AS o
    USING changed AS d
    WHERE
        o.namespace = d.namespace
        AND o.name = d.name
        AND o.change <= d.changes - 100
),
noted AS (
    -- The change.
    INSERT INTO ffx_limit_change (namespace, name, change, changed_at_ms, how, units, window_ms, when_full, changed_by)
    SELECT
        d.namespace,
        d.name,
        d.changes,
        d.changed_at_ms,
        CASE WHEN sqlc.arg(units)::bigint < 0 THEN 'reset' ELSE 'set' END,
        d.units,
        d.window_ms,
        d.when_full,
        sqlc.arg(changed_by)::text
    FROM changed AS d
)
SELECT h.fits::boolean AS fits
FROM held AS h;

-- name: LockLimit :execrows
-- LockLimit locks a limit after the end of all transactions that admit by the present rule. No row: the limit does not
-- exist.
--
-- Used by: limit.Delete.
-- Locks: limits waits (the advisory lock of the rule, for transactions that admit by the rule, then the row FOR
-- UPDATE).
SELECT
FROM (SELECT pg_advisory_xact_lock(ffx_limit_key(@namespace, @name)) IS NOT NULL AS alone OFFSET 0) AS a
CROSS JOIN LATERAL (
    SELECT
    FROM ffx_limit AS l
    WHERE
        a.alone
        AND l.namespace = @namespace
        AND l.name = @name
    FOR UPDATE
) AS t;

-- name: DropLimit :exec
-- DropLimit deletes a limit the caller has locked, with the changes. The keys stay, and count again once the limit is
-- declared again.
--
-- Used by: limit.Delete.
-- Locks: limits held (DELETE).
WITH forgotten AS (
    DELETE FROM ffx_limit_change AS o
    WHERE
        o.namespace = @namespace
        AND o.name = @name
)
DELETE FROM ffx_limit AS l
WHERE
    l.namespace = @namespace
    AND l.name = @name;

-- name: ListLimits :many
-- ListLimits returns a page of limits, in the order of their namespaces and names.
--
-- Passages: limit_columns.
-- Used by: limit.All.
-- Locks: none.
SELECT
    -- The columns of a limit l.
    l.namespace,
    l.name,
    l.units,
    coalesce(l.window_ms, 0)::bigint AS window_ms,
    l.when_full,
    l.declared_units,
    coalesce(l.declared_window_ms, 0)::bigint AS declared_window_ms,
    coalesce(l.set_at_ms, 0)::bigint AS set_at_ms,
    l.changed_at_ms
FROM ffx_limit AS l
WHERE (l.namespace, l.name) > (@after_namespace::text, @after_name::text)
ORDER BY
    l.namespace,
    l.name
LIMIT @page_size;

-- name: GetLimit :one
-- GetLimit returns a limit. No row: the limit does not exist.
--
-- Passages: limit_columns.
-- Used by: limit.Describe.
-- Locks: none.
SELECT
    -- The columns of a limit l.
    l.namespace,
    l.name,
    l.units,
    coalesce(l.window_ms, 0)::bigint AS window_ms,
    l.when_full,
    l.declared_units,
    coalesce(l.declared_window_ms, 0)::bigint AS declared_window_ms,
    coalesce(l.set_at_ms, 0)::bigint AS set_at_ms,
    l.changed_at_ms
FROM ffx_limit AS l
WHERE
    l.namespace = @namespace
    AND l.name = @name;

-- name: ListLimitChanges :many
-- ListLimitChanges returns the last changes of a limit, the newest first.
--
-- Used by: limit.Describe.
-- Locks: none.
SELECT
    h.changed_at_ms,
    h.how,
    h.units,
    coalesce(h.window_ms, 0)::bigint AS window_ms,
    h.when_full,
    h.changed_by
FROM ffx_limit_change AS h
WHERE
    h.namespace = @namespace
    AND h.name = @name
ORDER BY h.change DESC
LIMIT 100;

-- name: ListLimitKeys :many
-- ListLimitKeys returns a page of the keys of a limit, with their use, counted up to 1,001 rows, and up to five executions
-- with units in use, the longest first. hold_until_ms is 0 for a key that is not held.
--
-- Used by: limit.Keys.
-- Locks: none; spans partitions.
SELECT
    g.partition_key,
    g.gate_id,
    g.key,
    coalesce(g.next_at_ms, 0)::bigint AS next_at_ms,
    coalesce(CASE WHEN g.hold_until_ms > ffx_now_ms(sqlc.narg(now_ms)) THEN g.hold_until_ms END, 0)::bigint AS hold_until_ms,
    coalesce(g.hold_by, '')::text AS hold_by,
    coalesce((
        SELECT sum(n.units)
        FROM (
            SELECT t.units
            FROM ffx_gate_use AS t
            CROSS JOIN LATERAL (
                SELECT
                FROM ff_exec_core AS e
                WHERE
                    e.partition_key = t.execution_partition_key
                    AND e.execution_id = t.execution_id
                    AND e.ffx_admitted
                LIMIT 1
            ) AS h
            WHERE
                t.partition_key = g.partition_key
                AND t.gate_id = g.gate_id
                AND t.held
            LIMIT 1001
        ) AS n
    ), 0)::bigint AS in_use,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM ffx_waiting AS w
            WHERE w.gate_id = g.gate_id
            LIMIT 1001
        ) AS n
    )::bigint AS waiting,
    coalesce((
        SELECT min(n.waiting_since_ms)
        FROM (
            SELECT coalesce(e.ffx_last_mutation_at_ms, e.created_at_ms) AS waiting_since_ms
            FROM ffx_waiting AS w
            CROSS JOIN LATERAL (
                SELECT
                    t.ffx_last_mutation_at_ms,
                    t.created_at_ms
                FROM ff_exec_core AS t
                WHERE
                    t.partition_key = w.partition_key
                    AND t.execution_id = w.execution_id
                LIMIT 1
            ) AS e
            WHERE w.gate_id = g.gate_id
            LIMIT 1001
        ) AS n
    ), 0)::bigint AS waiting_since_ms,
    coalesce(h.partition_keys, '{}')::smallint[] AS holder_partition_keys,
    coalesce(h.execution_ids, '{}')::uuid[] AS holder_execution_ids
FROM ffx_gate AS g
CROSS JOIN LATERAL (
    -- The longest holders.
    SELECT
        array_agg(n.execution_partition_key) AS partition_keys,
        array_agg(n.execution_id) AS execution_ids
    FROM (
        SELECT
            t.execution_partition_key,
            t.execution_id
        FROM ffx_gate_use AS t
        CROSS JOIN LATERAL (
            SELECT
            FROM ff_exec_core AS e
            WHERE
                e.partition_key = t.execution_partition_key
                AND e.execution_id = t.execution_id
                AND e.ffx_admitted
            LIMIT 1
        ) AS e
        WHERE
            t.partition_key = g.partition_key
            AND t.gate_id = g.gate_id
            AND NOT t.settled
        ORDER BY
            t.admitted_at_ms,
            t.execution_id
        LIMIT 5
    ) AS n
) AS h
WHERE
    g.namespace = @namespace::text
    AND g.limit_name = @name::text
    AND (g.partition_key, g.gate_id) > (@after_partition_key::smallint, @after_gate_id::uuid)
ORDER BY
    g.partition_key,
    g.gate_id
LIMIT @page_size;

-- name: ListLimitUse :many
-- ListLimitUse returns the limits with keys in use, with the units in use of the fullest key and the number of waiting
-- executions. Counted are the first max_counted open admissions, and for up to max_counted keys the first max_waiting
-- waiting executions, of all limits. partial: there are more, so the numbers are lower bounds. A limit without both has
-- no row.
--
-- Used by: limit.InUse.
-- Locks: none; spans partitions.
WITH opened AS MATERIALIZED (
    -- Admissions not known to have ended.
    SELECT
        t.partition_key,
        t.gate_id,
        t.units,
        t.execution_partition_key,
        t.execution_id
    FROM ffx_gate_use AS t
    WHERE NOT t.settled
    ORDER BY
        t.partition_key,
        t.gate_id,
        t.admitted_at_ms,
        t.execution_id
    LIMIT @max_counted::int
),
queued AS MATERIALIZED (
    -- Executions waiting for a limit or a budget.
    SELECT w.gate_id
    FROM ffx_waiting AS w
    ORDER BY
        w.gate_id,
        w.rank,
        w.created_at_ms,
        w.execution_id,
        w.partition_key
    LIMIT @max_waiting::int
),
lines AS MATERIALIZED (
    -- Keys with waiting executions, and one more than are counted.
    SELECT
        q.gate_id,
        count(*) AS waiting
    FROM queued AS q
    GROUP BY q.gate_id
    ORDER BY q.gate_id
    LIMIT sqlc.arg(max_counted)::int + 1
),
used AS MATERIALIZED (
    -- Units in use and waiting executions by key.
    SELECT
        n.partition_key,
        n.gate_id,
        sum(n.in_use) AS in_use,
        sum(n.waiting) AS waiting
    FROM (
        SELECT
            o.partition_key,
            o.gate_id,
            o.units AS in_use,
            0::bigint AS waiting
        FROM opened AS o
        CROSS JOIN LATERAL (
            SELECT
            FROM ff_exec_core AS e
            WHERE
                e.partition_key = o.execution_partition_key
                AND e.execution_id = o.execution_id
                AND e.ffx_admitted
            LIMIT 1
        ) AS h
        UNION ALL
        SELECT
            get_byte(uuid_send(l.gate_id), 0)::smallint AS partition_key,
            l.gate_id,
            0::bigint AS in_use,
            l.waiting
        FROM (SELECT t.gate_id, t.waiting FROM lines AS t LIMIT @max_counted::int) AS l
    ) AS n
    GROUP BY
        n.partition_key,
        n.gate_id
)
SELECT
    g.namespace,
    g.limit_name::text AS name,
    max(u.in_use)::bigint AS in_use,
    sum(u.waiting)::bigint AS waiting,
    (
        (SELECT count(*) FROM opened) >= @max_counted::int
        OR (SELECT count(*) FROM queued) >= @max_waiting::int
        OR (SELECT count(*) FROM lines) > @max_counted::int
    )::boolean AS partial
FROM used AS u
CROSS JOIN LATERAL (
    SELECT
        t.namespace,
        t.limit_name
    FROM ffx_gate AS t
    WHERE
        t.partition_key = u.partition_key
        AND t.gate_id = u.gate_id
        AND t.limit_name IS NOT NULL
    LIMIT 1
) AS g
GROUP BY
    g.namespace,
    g.limit_name
ORDER BY
    g.namespace,
    g.limit_name;
