-- name: GetFlowProgress :one
-- GetFlowProgress returns a JSON array with the number of members of a flow by the facts their public state is derived
-- from. A value without effect on a state is "". Attempts are read only for ended members whose stored public state is
-- not an end, as other programs leave ended members. No row: the flow does not exist.
--
-- Used by: engine.FlowProgress.
-- Locks: none; one snapshot.
SELECT
    f.public_flow_state,
    coalesce((
        SELECT jsonb_agg(to_jsonb(c))
        FROM (
            SELECT
                m.lifecycle_phase,
                m.eligibility_state,
                m.public_state,
                coalesce(traces.pointer_outcome, '') AS pointer_outcome,
                coalesce(traces.current_outcome, '') AS current_outcome,
                coalesce(traces.raw_terminal_outcome, '') AS raw_terminal_outcome,
                coalesce(traces.cancellation_reason, '') AS cancellation_reason,
                coalesce(traces.last_failure_message, '') AS last_failure_message,
                coalesce(traces.failure_reason, '') AS failure_reason,
                count(*) AS members
            FROM ff_exec_core AS m
            LEFT JOIN LATERAL (
                SELECT
                    (
                        SELECT p.outcome
                        FROM ff_attempt AS p
                        WHERE
                            p.partition_key = m.partition_key
                            AND p.execution_id = m.execution_id
                            AND p.attempt_index = m.attempt_index
                    ) AS pointer_outcome,
                    (
                        SELECT a.outcome
                        FROM ff_attempt AS a
                        WHERE
                            a.partition_key = m.partition_key
                            AND a.execution_id = m.execution_id
                            AND a.attempt_index <= m.attempt_index
                        ORDER BY a.attempt_index DESC
                        LIMIT 1
                    ) AS current_outcome,
                    m.raw_fields ->> 'terminal_outcome' AS raw_terminal_outcome,
                    m.cancellation_reason,
                    m.raw_fields ->> 'last_failure_message' AS last_failure_message,
                    m.raw_fields ->> 'failure_reason' AS failure_reason
                WHERE
                    m.lifecycle_phase = 'terminal'
                    AND m.public_state NOT IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
                OFFSET 0 -- otherwise the attempts are looked up for every member and discarded
            ) AS traces ON true
            WHERE
                m.partition_key = f.partition_key
                AND m.flow_id = f.flow_id
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
        ) AS c
    ), '[]')::jsonb AS members
FROM ff_flow_core AS f
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id;
