-- The reservations of the CTE due, whose rows are locked, are deleted if their lease has ended, and otherwise last
-- until the lease's end. A seemingly ended lease is locked, so no renewal is under way; if locked already, the
-- reservation stays unchanged.
looked AS (
    -- The reservations, with the end of a live lease, and whether the lease has ended.
    SELECT
        d.row_id,
        d.partition_key,
        d.budget_id,
        d.execution_id,
        d.attempt_index,
        d.lease_epoch,
        d.dimensions_key,
        s.live_until_ms,
        o.over IS NOT NULL OR s.found IS NULL AS over
    FROM due AS d
    LEFT JOIN LATERAL (
        SELECT
            true AS found,
            CASE
                WHEN
                    t.lease_epoch = d.lease_epoch
                    AND t.lease_expires_at_ms > (SELECT now_ms FROM clock)
                    THEN t.lease_expires_at_ms
            END AS live_until_ms
        FROM ff_attempt AS t
        WHERE
            t.partition_key = d.execution_partition
            AND t.execution_id = d.execution_id
            AND t.attempt_index = d.attempt_index
        LIMIT 1
    ) AS s ON true
    LEFT JOIN LATERAL (
        SELECT true AS over
        FROM ff_attempt AS t
        WHERE
            t.partition_key = d.execution_partition
            AND t.execution_id = d.execution_id
            AND t.attempt_index = d.attempt_index
            AND (t.lease_epoch = d.lease_epoch AND t.lease_expires_at_ms > (SELECT now_ms FROM clock)) IS NOT TRUE
        FOR SHARE SKIP LOCKED
    ) AS o ON true
),
kept AS (
    -- The reservations of live leases, due at the lease's end.
    UPDATE ffx_budget_reservation AS r
    SET expires_at_ms = l.live_until_ms
    FROM looked AS l
    WHERE
        r.ctid = l.row_id
        AND r.partition_key = l.partition_key
        AND r.budget_id = l.budget_id
        AND r.execution_id = l.execution_id
        AND r.attempt_index = l.attempt_index
        AND r.lease_epoch = l.lease_epoch
        AND r.dimensions_key = l.dimensions_key
        AND NOT l.over
        AND l.live_until_ms IS NOT NULL
    RETURNING 1 AS one
),
dropped AS (
    -- The reservations of ended leases.
    DELETE FROM ffx_budget_reservation AS r
    USING looked AS l
    WHERE
        r.ctid = l.row_id
        AND r.partition_key = l.partition_key
        AND r.budget_id = l.budget_id
        AND r.execution_id = l.execution_id
        AND r.attempt_index = l.attempt_index
        AND r.lease_epoch = l.lease_epoch
        AND r.dimensions_key = l.dimensions_key
        AND l.over
    RETURNING 1 AS one
)
