INSERT INTO ff_lease_event (
    -- Takes ${rows} (partition_key, execution_id, lease_id, worker_instance_id, ffx_namespace, ffx_instance_tag).
    execution_id,
    lease_id,
    event_type,
    occurred_at_ms,
    partition_key,
    namespace,
    instance_tag,
    ffx_worker_instance_id,
    ffx_revoked_by
)
SELECT
    r.execution_id::text,
    r.lease_id,
    ${event_type},
    ${at_ms},
    r.partition_key,
    r.ffx_namespace,
    r.ffx_instance_tag,
    r.worker_instance_id,
    ${revoked_by}
FROM ${rows} AS r
WHERE
    -- Without columns of r it is asked once, and a value that is not kept costs no scan.
    coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
    IN ('all', CASE WHEN ${event_type} = 'expired' OR ${revoked_by} IN ('operator', 'reconciler') THEN 'lost' END)
