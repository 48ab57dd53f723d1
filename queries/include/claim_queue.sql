-- The entries of the lane for the worker, in claim order. Sorted first, so the limit stops the locking. Then their
-- executions are looked up one by one, even by a plan made while both tables were empty.
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
