INSERT INTO ff_attempt AS a (
    partition_key, execution_id, attempt_index, worker_id, worker_instance_id, lease_epoch, lease_expires_at_ms,
    started_at_ms, policy, ffx_attempt_type, ffx_attempt_id, ffx_lease_id, ffx_timeout_at_ms
)
SELECT
    n.partition_key,
    n.execution_id,
    n.attempt_index,
    @worker_id::text,
    @worker_instance_id::text,
    n.lease_epoch,
    n.lease_expires_at_ms,
    n.now_ms,
    n.attempt_policy,
    n.attempt_type,
    n.attempt_id,
    n.lease_id,
    n.timeout_at_ms
FROM claimed AS n
