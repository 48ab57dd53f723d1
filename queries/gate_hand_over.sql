-- name: HandOverPlaces :many
-- HandOverPlaces gives the places of executions that the same transaction has ended to those that wait longest for them, and
-- returns these. It does so for limits on what runs at once, if some execution waits there: it locks the key's row, takes
-- the places of the ended ones off its bound, and admits as many as the bound then allows. It counts nothing, so the bound
-- of the locked row is all that it relies on. An execution with other limits or budgets ends the line: a row with
-- undone true says that the gate has to look, for this reason or because a key was locked, or has no such limit.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim.
-- Locks: gates skips (rows FOR NO KEY UPDATE); L1 skips (waiting executions FOR NO KEY UPDATE). Spans partitions.
WITH input AS (
    -- The executions, each with one of its limits.
    SELECT
        unnest(@gate_partition_keys::smallint[]) AS gate_partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@gate_ids::uuid[])
),
asked AS MATERIALIZED (
    -- The limits that executions wait for.
    SELECT
        i.gate_partition_key AS partition_key,
        i.gate_id
    FROM (
        SELECT DISTINCT
            x.gate_partition_key,
            x.gate_id
        FROM input AS x
    ) AS i
    WHERE
        EXISTS (
            SELECT
            FROM ffx_waiting AS w
            WHERE w.gate_id = i.gate_id
            OFFSET 0
        )
    ORDER BY
        i.gate_partition_key,
        i.gate_id
),
taken AS MATERIALIZED (
    -- Those whose rows are free, locked.
    SELECT
        a.partition_key,
        a.gate_id,
        g.held,
        l.units AS limit_units
    FROM asked AS a
    CROSS JOIN LATERAL (
        SELECT
            t.namespace,
            t.limit_name,
            t.held
        FROM ffx_gate AS t
        WHERE
            t.partition_key = a.partition_key
            AND t.gate_id = a.gate_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS g
    CROSS JOIN LATERAL (
        SELECT t.units
        FROM ffx_limit AS t
        WHERE
            t.namespace = g.namespace
            AND t.name = g.limit_name
            AND t.window_ms IS NULL
        LIMIT 1
    ) AS l
),
freed AS (
    -- The admissions of the ended executions, deleted.
    DELETE FROM ffx_gate_use AS u
    USING (
        SELECT
            x.row_id,
            x.partition_key,
            x.gate_id,
            x.execution_id,
            x.admitted_at_ms
        FROM taken AS t
        JOIN input AS i ON i.gate_id = t.gate_id
        -- Looked up one by one: a plan made while the table was empty would read it whole.
        CROSS JOIN LATERAL (
            SELECT
                k.ctid::tid AS row_id,
                k.partition_key,
                k.gate_id,
                k.execution_id,
                k.admitted_at_ms
            FROM ffx_gate_use AS k
            WHERE
                k.partition_key = t.partition_key
                AND k.gate_id = t.gate_id
                AND k.execution_id = i.execution_id
                AND NOT EXISTS (
                    SELECT
                    FROM ff_exec_core AS e
                    WHERE
                        e.partition_key = i.partition_key
                        AND e.execution_id = i.execution_id
                        AND e.ffx_admitted
                    OFFSET 0
                )
            OFFSET 0
        ) AS x
    ) AS o
    WHERE
        u.ctid = o.row_id
        AND (u.partition_key = o.partition_key) IS TRUE
        AND (u.gate_id = o.gate_id) IS TRUE
        AND (u.execution_id = o.execution_id) IS TRUE
        AND (u.admitted_at_ms = o.admitted_at_ms) IS TRUE
    RETURNING
        u.gate_id,
        CASE WHEN u.held THEN u.units ELSE 0 END AS units
),
room AS MATERIALIZED (
    -- What the limits have left.
    SELECT
        t.partition_key,
        t.gate_id,
        t.held - f.units AS held,
        t.limit_units - (t.held - f.units) AS units
    FROM taken AS t
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(x.units), 0)::bigint AS units
        FROM freed AS x
        WHERE x.gate_id = t.gate_id
    ) AS f
),
next AS MATERIALIZED (
    -- The executions that wait there, as many as may fit, locked.
    SELECT
        r.partition_key AS gate_partition_key,
        r.gate_id,
        r.units AS room,
        x.partition_key,
        x.execution_id,
        x.lane_id,
        x.rank,
        x.created_at_ms,
        coalesce(x.ffx_limit_units[1], 1) AS units,
        (cardinality(x.ffx_limit_ids) = 1 AND x.ffx_budget_ids IS NULL) AS alone
    FROM room AS r
    CROSS JOIN LATERAL (
        SELECT
            e.partition_key,
            e.execution_id,
            e.lane_id,
            e.rank,
            e.created_at_ms,
            e.ffx_budget_ids,
            e.ffx_limit_ids,
            e.ffx_limit_units
        FROM (
            SELECT
                w.partition_key,
                w.execution_id
            FROM ffx_waiting AS w
            WHERE w.gate_id = r.gate_id
            ORDER BY
                w.rank,
                w.created_at_ms,
                w.execution_id
        ) AS q
        CROSS JOIN LATERAL (
            SELECT
                t.partition_key,
                t.execution_id,
                t.lane_id,
                - t.priority::bigint AS rank,
                t.created_at_ms,
                t.ffx_budget_ids,
                t.ffx_limit_ids,
                t.ffx_limit_units
            -- include waiting_execution: gate_id = r.gate_id
        ) AS e
        LIMIT least(greatest(r.units, 0), @max_items::integer)
    ) AS x
),
line AS MATERIALIZED (
    -- Those that fit, up to the first that the gate has to judge.
    SELECT
        n.gate_partition_key,
        n.gate_id,
        n.partition_key,
        n.execution_id,
        n.lane_id,
        n.units,
        n.alone,
        (sum(n.units) OVER ahead <= n.room AND bool_and(n.alone) OVER ahead) AS fits
    FROM next AS n
    WINDOW ahead AS (PARTITION BY n.gate_id ORDER BY n.rank, n.created_at_ms, n.execution_id)
),
admitted AS (
    -- These, claimable.
    UPDATE ff_exec_core AS e
    SET
        -- include set_admitted
    FROM line AS l
    WHERE
        l.fits
        AND e.partition_key = ANY (ARRAY[l.partition_key])
        AND e.execution_id = l.execution_id
    RETURNING
        e.lane_id,
        e.execution_id
),
used AS (
    -- Their admissions. One that was admitted in the same millisecond before has ended meanwhile.
    INSERT INTO ffx_gate_use (partition_key, gate_id, execution_id, admitted_at_ms, execution_partition_key, units, held)
    SELECT
        l.gate_partition_key,
        l.gate_id,
        l.execution_id,
        ffx_now_ms(sqlc.narg(now_ms)),
        l.partition_key,
        l.units,
        true
    FROM line AS l
    WHERE l.fits
    ON CONFLICT ON CONSTRAINT ffx_gate_use_pkey DO UPDATE
    SET
        units = excluded.units,
        held = true,
        started_at_ms = NULL
),
raised AS (
    -- The bounds.
    UPDATE ffx_gate AS g
    SET
        held = r.held + a.units,
        started = g.started + a.units,
        used_at_ms = CASE WHEN a.units > 0 THEN ffx_now_ms(sqlc.narg(now_ms)) ELSE g.used_at_ms END
    FROM room AS r
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(l.units), 0)::bigint AS units
        FROM line AS l
        WHERE
            l.gate_id = r.gate_id
            AND l.fits
    ) AS a
    WHERE
        g.partition_key = ANY (ARRAY[r.partition_key])
        AND g.gate_id = r.gate_id
)
SELECT
    a.lane_id,
    a.execution_id::uuid AS execution_id,
    false AS undone
FROM admitted AS a
UNION ALL
SELECT
    '',
    CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    true
WHERE
    (SELECT count(*) FROM taken) < (SELECT count(*) FROM asked)
    OR EXISTS (SELECT FROM line AS l WHERE NOT l.alone);
