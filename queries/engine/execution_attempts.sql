-- name: ListAttempts :many
-- ListAttempts pages through the attempts of an execution by index, strictly after one, with the columns of the
-- execution that describe attempts. One row without an attempt: none follows. No row: the execution does not exist.
--
-- Used by: engine.ListAttempts.
-- Locks: none; one snapshot.
SELECT
    e.attempt_index AS pointer,
    e.lifecycle_phase,
    e.ownership_state,
    e.ffx_lease_epoch AS highest_epoch,
    coalesce(e.raw_fields, '{}')::jsonb AS execution_raw_fields,
    coalesce(cur.attempt_index, -1)::integer AS current_index,
    coalesce(a.attempt_index, -1)::integer AS attempt_index,
    coalesce(a.worker_id, '')::text AS worker_id,
    coalesce(a.worker_instance_id, '')::text AS worker_instance_id,
    coalesce(a.lease_epoch, 0)::bigint AS lease_epoch,
    a.lease_expires_at_ms,
    a.started_at_ms,
    a.terminal_at_ms,
    coalesce(a.outcome, '')::text AS outcome,
    coalesce(a.raw_fields, '{}')::jsonb AS raw_fields,
    coalesce(a.ffx_attempt_type, '')::text AS attempt_type,
    a.ffx_attempt_id AS attempt_id,
    a.ffx_lease_id AS lease_id,
    a.ffx_timeout_at_ms AS timeout_at_ms,
    a.ffx_delay_until_ms AS delay_until_ms,
    a.ffx_resumed_at_ms AS resumed_at_ms,
    coalesce(a.ffx_stream_frames, 0)::bigint AS stream_frames,
    a.ffx_stream_ts_ms AS stream_at_ms
FROM ff_exec_core AS e
LEFT JOIN LATERAL (
    SELECT c.attempt_index
    FROM ff_attempt AS c
    WHERE
        c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN LATERAL (
    SELECT
        t.attempt_index,
        t.worker_id,
        t.worker_instance_id,
        t.lease_epoch,
        t.lease_expires_at_ms,
        t.started_at_ms,
        t.terminal_at_ms,
        t.outcome,
        t.raw_fields,
        t.ffx_attempt_type,
        t.ffx_attempt_id,
        t.ffx_lease_id,
        t.ffx_timeout_at_ms,
        t.ffx_delay_until_ms,
        t.ffx_resumed_at_ms,
        t.ffx_stream_frames,
        t.ffx_stream_ts_ms
    FROM ff_attempt AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND t.attempt_index > @after_index::integer
    ORDER BY t.attempt_index
    LIMIT @page_size::integer
) AS a ON true
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id
ORDER BY a.attempt_index;
