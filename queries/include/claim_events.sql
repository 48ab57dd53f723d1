-- The lease events. From claimed: partition_key, execution_id, lease_id, now_ms, ffx_namespace, ffx_instance_tag.
INSERT INTO ff_lease_event (
    execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, instance_tag, ffx_worker_instance_id
)
SELECT
    n.execution_id::text, n.lease_id::text, ${event}, n.now_ms, n.partition_key, n.ffx_namespace, n.ffx_instance_tag,
    @worker_instance_id::text
FROM claimed AS n
WHERE coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
    IN ('all', CASE WHEN ${event} = 'reclaimed' THEN 'lost' END)
