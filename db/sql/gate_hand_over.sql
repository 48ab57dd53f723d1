-- name: FreePlaces :one
-- FreePlaces takes the places of executions the same transaction has ended off the bounds of their limits, if
-- executions wait there. Nothing is counted: a bound covers all stored admissions, so the bound falls by the units
-- deleted here. undone: a key was locked, or belongs to no limit on running work, so the gate has to look. awaited:
-- executions wait.
--
-- Passages: gates_asked, gates_taken.
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim.
-- Locks: gates skips (rows FOR NO KEY UPDATE); limits skips (advisory locks of the rules, shared). Spans partitions.
WITH input AS (
    -- The executions, each with one of its limits.
    SELECT
        unnest(@gate_partition_keys::smallint[]) AS gate_partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
),
asked AS MATERIALIZED (
    -- The limits of an input (gate_partition_key, gate_id) with waiting executions, each once.
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
    -- The limits of asked on running work whose rows and rules are free, locked. A held key has no room.
    SELECT
        a.partition_key,
        a.gate_id,
        CASE WHEN g.hold_until_ms > ffx_now_ms(sqlc.narg(now_ms)) THEN 0 ELSE l.units - g.held END AS room
    FROM asked AS a
    CROSS JOIN LATERAL (
        SELECT
            t.namespace,
            t.limit_name,
            t.held,
            t.hold_until_ms
        FROM ffx_gate AS t
        WHERE
            t.partition_key = a.partition_key
            AND t.gate_id = a.gate_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS g
    CROSS JOIN LATERAL ffx_limit_in_force(g.namespace, g.limit_name) AS l
    WHERE
        l.units IS NOT NULL
        AND l.window_ms IS NULL
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
        -- Looked up one by one: a plan made while the table was empty would read the whole table.
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
                AND NOT k.settled
                AND NOT EXISTS (
                    SELECT
                    FROM ff_exec_core AS e
                    WHERE
                        e.partition_key = i.partition_key
                        AND e.execution_id = i.execution_id
                        AND e.ffx_admitted
                )
            OFFSET 0
        ) AS x
    ) AS o
    WHERE
        u.ctid = o.row_id
        AND u.partition_key = o.partition_key
        AND u.gate_id = o.gate_id
        AND u.execution_id = o.execution_id
        AND u.admitted_at_ms = o.admitted_at_ms
    RETURNING
        u.partition_key,
        u.gate_id,
        CASE WHEN u.held THEN u.units ELSE 0 END AS units
),
lowered AS (
    -- The bounds.
    UPDATE ffx_gate AS g
    SET held = g.held - f.units
    FROM (
        SELECT
            x.partition_key,
            x.gate_id,
            sum(x.units)::bigint AS units
        FROM freed AS x
        GROUP BY
            x.partition_key,
            x.gate_id
    ) AS f
    WHERE
        g.partition_key = ANY (ARRAY[f.partition_key])
        AND g.gate_id = f.gate_id
)
SELECT
    ((SELECT count(*) FROM taken) < (SELECT count(*) FROM asked))::boolean AS undone,
    EXISTS (SELECT FROM asked)::boolean AS awaited;

-- name: AdmitNext :many
-- AdmitNext admits the executions longest waiting at limits on running work, as many as the bounds allow, and returns
-- the admitted ones. An execution with other limits or budgets ends the line: with undone true the gate has to look.
--
-- Passages: gates_asked, gates_taken, waiting_line, set_admitted.
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim.
-- Locks: gates skips (rows FOR NO KEY UPDATE); limits skips (advisory locks of the rules, shared); L1 skips (waiting executions FOR NO KEY UPDATE). Spans partitions.
WITH input AS (
    -- The limits.
    SELECT
        unnest(@gate_partition_keys::smallint[]) AS gate_partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id
),
asked AS MATERIALIZED (
    -- The limits of an input (gate_partition_key, gate_id) with waiting executions, each once.
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
    -- The limits of asked on running work whose rows and rules are free, locked. A held key has no room.
    SELECT
        a.partition_key,
        a.gate_id,
        CASE WHEN g.hold_until_ms > ffx_now_ms(sqlc.narg(now_ms)) THEN 0 ELSE l.units - g.held END AS room
    FROM asked AS a
    CROSS JOIN LATERAL (
        SELECT
            t.namespace,
            t.limit_name,
            t.held,
            t.hold_until_ms
        FROM ffx_gate AS t
        WHERE
            t.partition_key = a.partition_key
            AND t.gate_id = a.gate_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS g
    CROSS JOIN LATERAL ffx_limit_in_force(g.namespace, g.limit_name) AS l
    WHERE
        l.units IS NOT NULL
        AND l.window_ms IS NULL
),
next AS MATERIALIZED (
    -- The waiting executions, as many as may fit, locked.
    SELECT
        o.partition_key AS gate_partition_key,
        o.gate_id,
        o.room,
        w.partition_key,
        w.execution_id,
        w.lane_id,
        w.priority,
        w.created_at_ms,
        coalesce(w.ffx_limit_units[1], 1) AS units,
        (cardinality(w.ffx_limit_ids) = 1 AND w.ffx_budget_ids IS NULL) AS alone
    FROM taken AS o
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
        -- The executions x waiting at a budget or limit, in order. Each is locked, or skipped if held by another transaction.
        FROM (
            SELECT
                w.partition_key,
                w.execution_id
            FROM ffx_waiting AS w
            WHERE w.gate_id = o.gate_id
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
                t.priority,
                t.created_at_ms,
                t.ffx_budget_ids,
                t.ffx_limit_ids,
                t.ffx_limit_units
            FROM ff_exec_core AS t
            WHERE
                t.partition_key = q.partition_key
                AND t.execution_id = q.execution_id
                AND t.ffx_gate_id = o.gate_id
                AND t.lifecycle_phase = 'runnable'
                AND t.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota')
            LIMIT 1
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS x
        LIMIT least(greatest(o.room, 0), @max_items::integer)
    ) AS w
),
line AS MATERIALIZED (
    -- The executions that fit, up to the first one the gate has to decide about.
    SELECT
        n.gate_partition_key,
        n.gate_id,
        n.partition_key,
        n.execution_id,
        n.units,
        n.alone,
        (sum(n.units) OVER ahead <= n.room AND bool_and(n.alone) OVER ahead) AS fits
    FROM next AS n
    WINDOW ahead AS (PARTITION BY n.gate_id ORDER BY n.priority DESC, n.created_at_ms, n.execution_id)
),
admitted AS (
    -- The executions that fit, claimable.
    UPDATE ff_exec_core AS e
    SET
        -- The columns an admission sets in an execution e.
        eligibility_state = 'eligible_now',
        public_state = 'waiting',
        blocking_reason = 'waiting_for_worker',
        ffx_gate_id = NULL,
        ffx_admitted = true,
        ffx_last_mutation_at_ms = ffx_now_ms(sqlc.narg(now_ms))
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
    -- Their admissions. An execution already admitted in the same millisecond has released the earlier admission.
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
        started_at_ms = NULL,
        settled = false
),
raised AS (
    -- The bounds.
    UPDATE ffx_gate AS g
    SET
        held = g.held + a.units,
        started = g.started + a.units,
        used_at_ms = ffx_now_ms(sqlc.narg(now_ms))
    FROM (
        SELECT
            l.gate_partition_key,
            l.gate_id,
            sum(l.units)::bigint AS units
        FROM line AS l
        WHERE l.fits
        GROUP BY l.gate_partition_key, l.gate_id
    ) AS a
    WHERE
        g.partition_key = ANY (ARRAY[a.gate_partition_key])
        AND g.gate_id = a.gate_id
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
WHERE EXISTS (SELECT FROM line AS l WHERE NOT l.alone);
