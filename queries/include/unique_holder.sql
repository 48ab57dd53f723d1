-- The holder of a unique key, and whether the key is in force: NULL if the holder no longer exists. Reads i.
SELECT
    t.taken,
    t.holder_partition_key,
    t.execution_id,
    h.in_force
FROM ffx_unique AS t
LEFT JOIN LATERAL (
    SELECT
        CASE t.lasts
            WHEN 'waiting' THEN e.lifecycle_phase = 'runnable' AND e.attempt_state = 'pending_first_attempt'
            WHEN 'unfinished' THEN e.lifecycle_phase NOT IN ('terminal', 'cancelled')
            ELSE TRUE
        END AS in_force
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = t.holder_partition_key
        AND e.execution_id = t.execution_id
    LIMIT 1
) AS h ON TRUE
WHERE
    t.partition_key = i.key_partition
    AND t.key = i.key
LIMIT 1
