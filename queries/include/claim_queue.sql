-- Sorted first, so the limit stops the locking. Any plan, even for empty tables, looks executions up one by one.
SELECT
    q.ctid::tid AS entry_id,
    q.lane_id,
    q.rank,
    q.created_at_ms,
    q.execution_id,
    q.partition_key
FROM ffx_ready AS q
WHERE
    q.lane_id = @lane_id
    AND q.required_capabilities <@ @capabilities::text[]
    AND (q.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE
ORDER BY
    q.rank,
    q.created_at_ms,
    q.execution_id
