-- One timer for all, named by the first of lease_ids. From claimed: the attempts' keys, and lease_expires_at_ms.
INSERT INTO ffx_lease_timer (due_at_ms, timer_id, partition_keys, execution_ids, attempt_indexes)
SELECT
    min(n.lease_expires_at_ms),
    CAST((@lease_ids::uuid[])[1] AS uuid),
    array_agg(n.partition_key),
    array_agg(n.execution_id),
    array_agg(n.attempt_index)
FROM claimed AS n
HAVING count(*) > 0
