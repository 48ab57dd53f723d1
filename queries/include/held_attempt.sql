LEFT JOIN LATERAL (
    -- The current attempt cur of the execution e of an item i: the newest up to the pointer. The planner drops unused
    -- columns.
    SELECT
        c.ctid::tid AS row_id,
        c.attempt_index,
        c.lease_epoch,
        c.outcome,
        c.terminal_at_ms,
        c.lease_expires_at_ms,
        c.lease_expires_at_ms IS NOT NULL
        AND e.ownership_state IN ('leased', 'lease_expired_reclaimable', 'lease_revoked') AS leased,
        c.ffx_delay_until_ms,
        c.worker_id,
        c.worker_instance_id,
        -- Another program keeps the ids of an attempt and a lease in raw_fields; the library uses the columns.
        CASE
            WHEN c.lease_epoch = e.ffx_lease_epoch THEN c.ffx_lease_id::text
            ELSE c.raw_fields ->> 'lease_id'
        END AS lease_id,
        CASE
            WHEN c.lease_epoch = e.ffx_lease_epoch THEN c.ffx_attempt_id::text
            ELSE c.raw_fields ->> 'attempt_id'
        END AS attempt_id
    FROM ff_attempt AS c
    WHERE
        c.partition_key = i.partition_key
        AND c.execution_id = i.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
