-- The execution of an entry r, locked if claimable.
FROM ff_exec_core AS t
WHERE
    t.partition_key = r.partition_key
    AND t.execution_id = r.execution_id
    AND t.lane_id IS NOT DISTINCT FROM r.lane_id
    AND - t.priority::bigint = r.rank
    AND t.created_at_ms = r.created_at_ms
    AND t.lifecycle_phase IS NOT DISTINCT FROM 'runnable'
    AND t.eligibility_state = 'eligible_now'
    AND t.required_capabilities <@ @capabilities::text[]
    -- Skips rows claimed since the snapshot, which would be locked all the same.
    AND (t.xmax = 0 OR ffx_claimable_now(t.partition_key, t.execution_id))
FOR NO KEY UPDATE SKIP LOCKED
