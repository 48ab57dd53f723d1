-- Frees an attempt a of the lease, under a raised epoch, and notes the worker that lost the lease; the newest 32 are
-- kept.
raw_fields = CASE
    WHEN a.worker_instance_id IS NULL THEN a.raw_fields
    ELSE jsonb_set(
        a.raw_fields,
        '{ffx_lost_leases}',
        jsonb_path_query_array(a.raw_fields, '$.ffx_lost_leases[last - 30 to last]') || jsonb_build_object(
            'worker', a.worker_id,
            'instance', a.worker_instance_id,
            'epoch', a.lease_epoch,
            'at', @now_ms::bigint,
            'how', ${how}
        )
    )
END,
lease_expires_at_ms = NULL,
ffx_timeout_at_ms = NULL,
worker_id = NULL,
worker_instance_id = NULL,
terminal_at_ms = NULL,
lease_epoch = ${raised_epoch}
