-- The entries after a position p (rank, created_at_ms, execution_id) whose executions are claimable.
SELECT
    c.ctid::tid AS row_id,
    r.ctid::tid AS entry_id,
    c.partition_key,
    c.execution_id,
    c.attempt_state,
    coalesce(c.ffx_last_mutation_at_ms, c.created_at_ms) AS ready_at_ms
FROM ffx_ready AS r
JOIN ff_exec_core AS c ON c.partition_key = r.partition_key AND c.execution_id = r.execution_id
WHERE
    r.lane_id = @lane_id
    AND r.rank = p.rank
    AND (r.created_at_ms, r.execution_id) > (p.created_at_ms, p.execution_id)
    AND r.required_capabilities <@ @capabilities::text[]
    AND (r.kind = ANY (sqlc.narg(kinds)::text[])) IS NOT FALSE
    -- IS NOT DISTINCT FROM uses no index: the execution is found by key, whatever other indexes there are.
    AND c.lane_id IS NOT DISTINCT FROM r.lane_id
    AND - c.priority::bigint = r.rank
    AND c.created_at_ms = r.created_at_ms
    AND c.lifecycle_phase IS NOT DISTINCT FROM 'runnable'
    AND c.eligibility_state = 'eligible_now'
    AND c.required_capabilities <@ @capabilities::text[]
    AND c.attempt_state <> 'attempt_interrupted'
ORDER BY
    r.created_at_ms,
    r.execution_id
