-- Whether the execution ${execution} was called, and the caller has neither ended nor stored the result. Without a
-- caller, nothing is looked up.
CASE
    WHEN ${execution}.ffx_caller IS NULL THEN false
    ELSE EXISTS (
        SELECT
        FROM ffx_step AS s
        CROSS JOIN LATERAL (
            SELECT
            FROM ff_exec_core AS k
            WHERE
                k.partition_key = s.partition_key
                AND k.execution_id = s.execution_id
                AND (k.lifecycle_phase IN ('terminal', 'cancelled')) IS NOT TRUE
            LIMIT 1
        ) AS caller
        WHERE
            s.partition_key = (${execution}.ffx_caller ->> 'partition_key')::smallint
            AND s.execution_id = (${execution}.ffx_caller ->> 'execution_id')::uuid
            AND s.name = ${execution}.ffx_caller ->> 'step'
            AND s.outcome = 'called'
            -- After a replay of the caller from the step, the step has called other executions.
            AND ${execution}.execution_id = ANY (s.called_execution_ids)
    )
END
