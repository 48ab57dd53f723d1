-- A registered worker w with its load, at the time of n.
w.worker_instance_id,
w.capabilities_csv,
w.last_heartbeat_ms,
coalesce(w.ffx_kinds, '{}')::text[] AS kinds,
coalesce(w.ffx_running, 0)::integer AS running,
coalesce(w.ffx_concurrency, 0)::integer AS concurrency,
coalesce(w.ffx_stopping, false)::boolean AS stopping,
coalesce(w.ffx_full_kinds, '{}')::text[] AS full_kinds,
coalesce(w.ffx_stuck, 0)::integer AS stuck,
(w.last_heartbeat_ms + w.liveness_ttl_ms > n.now_ms)::boolean AS live,
EXISTS (
    SELECT
    FROM ffx_pause AS p
    WHERE
        p.subject = 'worker'
        AND p.name = w.worker_instance_id
) AS drained
