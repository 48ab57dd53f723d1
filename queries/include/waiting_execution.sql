-- An execution t that waits at a budget or limit, by its row q of ffx_waiting, locked unless another transaction holds it.
FROM ff_exec_core AS t
WHERE
    t.partition_key = q.partition_key
    AND t.execution_id = q.execution_id
    AND t.ffx_gate_id = ${gate_id}
    AND t.lifecycle_phase = 'runnable'
    AND t.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota')
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED
