-- name: ScanExpiredGrants :many
-- ScanExpiredGrants finds unusable grants, the oldest first, after a place in the same order, and the named executions.
-- gone: the execution no longer exists.
--
-- Used by: upkeep.ExpireGrants.
-- Locks: none. Spans partitions.
SELECT
    g.expires_at_ms,
    g.partition_key,
    g.grant_id,
    g.execution_id,
    NOT EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = g.partition_key
            AND e.execution_id = g.execution_id
        OFFSET 0 -- otherwise one scan of all executions may look cheaper than a lookup for each grant
    ) AS gone
FROM ff_claim_grant AS g
WHERE
    g.expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    AND g.expires_at_ms >= @after_expires_at_ms::bigint
    AND (g.expires_at_ms, g.partition_key, g.grant_id)
        > (@after_expires_at_ms::bigint, @after_partition_key::smallint, @after_grant_id::bytea)
ORDER BY
    g.expires_at_ms,
    g.partition_key,
    g.grant_id
LIMIT @page_size::integer;

-- name: ExpireGrants :many
-- ExpireGrants deletes the expired grants of the given executions. Granted executions without a usable claim grant left
-- return to their lanes. Returns the executions of deleted grants, with the lane of each one claimable now.
--
-- Used by: upkeep.ExpireGrants, upkeep.RepairQueue.
-- Locks: L1 held; L5 skips (grants FOR UPDATE, then the DELETE); queue held, by the execution's row.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    -- The executions, which the caller has locked.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
),
expired AS (
    -- Their unusable grants, deleted.
    DELETE FROM ff_claim_grant AS g
    USING (
        SELECT
            l.grant_row_id,
            l.partition_key,
            l.grant_id
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT
                t.ctid::tid AS grant_row_id,
                t.partition_key,
                t.grant_id
            FROM ff_claim_grant AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.execution_id = i.execution_id
                AND (t.expires_at_ms <= (SELECT now_ms FROM clock)) IS TRUE
            FOR UPDATE SKIP LOCKED
        ) AS l
    ) AS d
    WHERE
        g.ctid = d.grant_row_id
        AND g.partition_key = d.partition_key
        AND g.grant_id = d.grant_id
    RETURNING
        g.partition_key,
        g.execution_id
),
returned AS (
    -- The executions without a usable claim grant, claimable by every worker.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'runnable',
        ownership_state = 'unowned',
        eligibility_state = 'eligible_now',
        public_state = CASE e.public_state WHEN 'resumable' THEN 'resumable' ELSE 'waiting' END,
        blocking_reason = 'waiting_for_worker',
        ffx_gate_id = NULL,
        ffx_last_mutation_at_ms = (SELECT now_ms FROM clock)
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
        AND e.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'eligible', 'blocked')
        AND e.ownership_state IN ('unowned', 'released')
        AND e.eligibility_state = 'pending_claim'
        AND NOT EXISTS (
            SELECT
            FROM ff_claim_grant AS g
            WHERE
                g.partition_key = ANY (ARRAY[i.partition_key])
                AND g.execution_id = i.execution_id
                AND g.kind = 'claim'
                AND (g.expires_at_ms > (SELECT now_ms FROM clock)) IS TRUE
        )
    RETURNING
        e.partition_key,
        e.execution_id,
        e.lane_id
)
SELECT
    r.partition_key,
    r.execution_id,
    r.lane_id
FROM returned AS r
UNION ALL
SELECT
    x.partition_key,
    x.execution_id,
    ''
FROM expired AS x;
