-- The queue entries of alike executions. Reads made.
INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
SELECT
    sqlc.arg(lane_id)::text,
    - m.priority::bigint,
    m.created_at_ms,
    m.execution_id,
    m.partition_key,
    m.required_capabilities,
    sqlc.arg(kind)::text
FROM made AS m
