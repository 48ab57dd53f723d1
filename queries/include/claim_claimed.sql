-- From candidates: row_id, entry_id, partition_key, execution_id, attempt_state, ready_at_ms, attempt_id, lease_id, now_ms.
FROM candidates AS c
WHERE
    -- A row changed between snapshot and lock is not found by ctid and stays unchanged.
    e.ctid = c.row_id
    AND e.partition_key = c.partition_key
    AND e.execution_id = c.execution_id
RETURNING
    c.entry_id,
    c.attempt_id, c.lease_id,
    c.ready_at_ms,
    c.now_ms, c.now_ms + @lease_ttl_ms::bigint AS lease_expires_at_ms,
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.attempt_index,
    e.ffx_lease_epoch AS lease_epoch,
    c.attempt_state AS prior_attempt_state,
    ffx_attempt_type(c.attempt_state) AS attempt_type,
    ffx_attempt_policy(c.attempt_state, e.raw_fields, e.attempt_index) AS attempt_policy,
    ffx_attempt_timeout_at(e.policy, c.now_ms) AS timeout_at_ms,
    e.priority,
    e.created_at_ms,
    e.payload,
    e.raw_fields,
    e.ffx_retry_count,
    e.ffx_limit_ids, e.ffx_trace,
    e.ffx_namespace, e.ffx_instance_tag
