-- Whether the key of unique work t is in force: no row if the holder no longer exists.
SELECT
    CASE t.lasts
        WHEN 'waiting' THEN e.lifecycle_phase = 'runnable' AND e.attempt_state = 'pending_first_attempt'
        WHEN 'unfinished' THEN e.lifecycle_phase NOT IN ('terminal', 'cancelled')
        WHEN 'unfailed' THEN e.public_state NOT IN ('failed', 'expired', 'cancelled', 'skipped')
        ELSE TRUE
    END AS in_force
FROM ff_exec_core AS e
WHERE
    e.partition_key = t.holder_partition_key
    AND e.execution_id = t.execution_id
LIMIT 1
