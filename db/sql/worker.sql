-- name: RegisterWorker :one
-- RegisterWorker registers a worker process, or new lanes, capabilities and time to live. fresh: the worker was not
-- registered before, or its time to live had passed. drained_at_ms is 0 unless the instance is drained. No row: a live
-- worker with another worker id has the instance id.
--
-- Used by: engine.RegisterWorker.
-- Locks: workers waits (the row, INSERT).
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
registered AS (
    -- The row, unless another worker has the instance id.
    INSERT INTO ff_worker_registry AS w (
        partition_key, namespace, worker_instance_id, worker_id, lanes, capabilities_csv,
        last_heartbeat_ms, liveness_ttl_ms, registered_at_ms, ffx_kinds, ffx_running,
        ffx_concurrency, ffx_stopping
    )
    SELECT
        @partition_key::smallint,
        @namespace::text,
        @worker_instance_id::text,
        @worker_id::text,
        @lanes::text[],
        @worker_capabilities::text,
        c.now_ms,
        @liveness_ttl_ms::bigint,
        c.now_ms,
        @kinds::text[],
        @running::integer,
        @concurrency::integer,
        false
    FROM clock AS c
    ON CONFLICT (partition_key, namespace, worker_instance_id) DO UPDATE SET
        worker_id = excluded.worker_id,
        lanes = excluded.lanes,
        capabilities_csv = excluded.capabilities_csv,
        last_heartbeat_ms = greatest(w.last_heartbeat_ms, excluded.last_heartbeat_ms),
        liveness_ttl_ms = excluded.liveness_ttl_ms,
        registered_at_ms = CASE
            WHEN w.last_heartbeat_ms + w.liveness_ttl_ms > excluded.last_heartbeat_ms THEN w.registered_at_ms
            ELSE excluded.registered_at_ms
        END,
        ffx_kinds = excluded.ffx_kinds,
        ffx_running = excluded.ffx_running,
        ffx_concurrency = excluded.ffx_concurrency,
        ffx_stopping = excluded.ffx_stopping,
        ffx_started = excluded.ffx_started,
        ffx_full_kinds = excluded.ffx_full_kinds,
        ffx_stuck = excluded.ffx_stuck
    WHERE
        w.worker_id = excluded.worker_id
        OR w.last_heartbeat_ms + w.liveness_ttl_ms <= excluded.last_heartbeat_ms
    RETURNING
        w.last_heartbeat_ms,
        w.liveness_ttl_ms,
        w.registered_at_ms
),
told AS (
    -- The event.
    INSERT INTO ff_worker_registry_event (partition_key, namespace, worker_instance_id, event_kind, event_at_ms)
    SELECT
        @partition_key::smallint,
        @namespace::text,
        @worker_instance_id::text,
        'registered',
        c.now_ms
    FROM registered AS r
    CROSS JOIN clock AS c
    ON CONFLICT DO NOTHING
)
SELECT
    (r.last_heartbeat_ms + r.liveness_ttl_ms)::bigint AS expires_at_ms,
    (r.registered_at_ms = (SELECT now_ms FROM clock))::boolean AS fresh,
    coalesce((
        SELECT p.paused_at_ms
        FROM ffx_pause AS p
        WHERE
            p.name = @worker_instance_id::text
            AND p.subject = 'worker'
    ), 0)::bigint AS drained_at_ms
FROM registered AS r;

-- name: HeartbeatWorker :one
-- HeartbeatWorker extends the presence of a live worker and stores the load. The heartbeat touches no index and writes
-- no event. drained_at_ms is 0 unless the instance is drained. busy: another transaction holds the row, and nothing was
-- written. No row: the worker is not registered, its time to live has passed, or another worker has the instance id;
-- the worker has to register again.
--
-- Used by: engine.HeartbeatWorker.
-- Locks: workers skips (the row FOR NO KEY UPDATE, then the UPDATE).
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
live AS (
    -- The worker as of the beginning of the call.
    SELECT w.worker_instance_id
    FROM ff_worker_registry AS w
    WHERE
        w.partition_key = @partition_key
        AND w.namespace = @namespace
        AND w.worker_instance_id = @worker_instance_id
        AND w.worker_id = @worker_id
        AND w.last_heartbeat_ms + w.liveness_ttl_ms > (SELECT now_ms FROM clock)
),
taken AS (
    -- The row, locked.
    SELECT w.ctid::tid AS row_id
    FROM ff_worker_registry AS w
    WHERE
        w.partition_key = @partition_key
        AND w.namespace = @namespace
        AND w.worker_instance_id = @worker_instance_id
        AND w.worker_id = @worker_id
        AND w.last_heartbeat_ms + w.liveness_ttl_ms > (SELECT now_ms FROM clock)
    FOR NO KEY UPDATE SKIP LOCKED
),
beaten AS (
    -- The row, updated.
    UPDATE ff_worker_registry AS w
    SET
        last_heartbeat_ms = greatest(w.last_heartbeat_ms, (SELECT now_ms FROM clock)),
        ffx_running = @running::integer,
        ffx_stopping = @stopping::boolean,
        ffx_started = (@started::text)::jsonb,
        ffx_full_kinds = @full_kinds::text[],
        ffx_stuck = @stuck::integer
    FROM taken AS t
    WHERE
        w.ctid = t.row_id
        AND w.partition_key = @partition_key::smallint
        AND w.namespace = @namespace
        AND w.worker_instance_id = @worker_instance_id
    RETURNING w.last_heartbeat_ms + w.liveness_ttl_ms AS expires_at_ms
)
SELECT
    (b.expires_at_ms IS NULL)::boolean AS busy,
    coalesce(b.expires_at_ms, 0)::bigint AS expires_at_ms,
    coalesce((
        SELECT p.paused_at_ms
        FROM ffx_pause AS p
        WHERE
            p.name = @worker_instance_id
            AND p.subject = 'worker'
    ), 0)::bigint AS drained_at_ms
FROM live AS l
LEFT JOIN beaten AS b ON true;

-- name: DropWorker :one
-- DropWorker deletes a worker, live or not, and writes the event. With a worker id another worker's row stays. Returns
-- the number of deleted rows, 0 or 1.
--
-- Used by: engine.MarkWorkerDead.
-- Locks: workers waits (the row, DELETE).
WITH dropped AS (
    DELETE FROM ff_worker_registry AS w
    WHERE
        w.partition_key = @partition_key
        AND w.namespace = @namespace
        AND w.worker_instance_id = @worker_instance_id
        AND (w.worker_id = @worker_id OR @worker_id::text = '') IS TRUE
    RETURNING
        w.partition_key,
        w.namespace,
        w.worker_instance_id
),
told AS (
    INSERT INTO ff_worker_registry_event (partition_key, namespace, worker_instance_id, event_kind, event_at_ms, reason)
    SELECT
        d.partition_key,
        d.namespace,
        d.worker_instance_id,
        'marked_dead',
        ffx_now_ms(sqlc.narg(now_ms)),
        nullif(@reason::text, '')
    FROM dropped AS d
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS dropped
FROM dropped AS d;

-- name: ListWorkers :many
-- ListWorkers pages through the registered workers in byte order of namespace and instance, strictly after one. An
-- empty namespace, worker id, instance or lane means all. drained_at_ms is 0 unless the instance is drained. The table
-- has a row for each process, so all rows are read.
--
-- Used by: engine.ListWorkers.
-- Locks: none. Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
)
SELECT
    w.namespace,
    w.worker_instance_id,
    w.worker_id,
    w.lanes,
    w.capabilities_csv,
    w.last_heartbeat_ms,
    w.liveness_ttl_ms,
    w.registered_at_ms,
    coalesce(w.ffx_kinds, '{}')::text[] AS kinds,
    coalesce(w.ffx_running, 0)::integer AS running,
    coalesce(w.ffx_concurrency, 0)::integer AS concurrency,
    coalesce(w.ffx_stopping, false)::boolean AS stopping,
    coalesce(w.ffx_full_kinds, '{}')::text[] AS full_kinds,
    coalesce(w.ffx_stuck, 0)::integer AS stuck,
    (w.last_heartbeat_ms + w.liveness_ttl_ms > (SELECT now_ms FROM clock))::boolean AS live,
    coalesce((
        SELECT p.paused_at_ms
        FROM ffx_pause AS p
        WHERE
            p.name = w.worker_instance_id
            AND p.subject = 'worker'
    ), 0)::bigint AS drained_at_ms
FROM ff_worker_registry AS w
WHERE
    (w.namespace COLLATE "C", w.worker_instance_id COLLATE "C") > (@after_namespace::text, @after_instance::text)
    AND (w.namespace = @namespace::text OR @namespace::text = '')
    AND (w.worker_id = @worker_id::text OR @worker_id::text = '')
    AND (w.worker_instance_id = @worker_instance_id::text OR @worker_instance_id::text = '')
    AND (@lane_id::text = ANY (w.lanes) OR @lane_id::text = '')
    AND (@gone::boolean OR w.last_heartbeat_ms + w.liveness_ttl_ms > (SELECT now_ms FROM clock))
ORDER BY
    w.namespace COLLATE "C",
    w.worker_instance_id COLLATE "C"
LIMIT @page_size::integer;

-- name: SweepWorkers :one
-- SweepWorkers deletes workers whose time to live has passed, and writes an event for each. Returns how many. A
-- heartbeat that came first keeps the row: expiry is checked under the lock. The table has a row for each process, so
-- all rows are read.
--
-- Used by: upkeep.SweepWorkers.
-- Locks: workers skips (FOR UPDATE, then the DELETE). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
gone AS (
    -- The expired workers, locked.
    SELECT
        w.ctid::tid AS row_id,
        w.partition_key,
        w.namespace,
        w.worker_instance_id
    FROM ff_worker_registry AS w
    WHERE w.last_heartbeat_ms + w.liveness_ttl_ms <= (SELECT now_ms FROM clock)
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
),
swept AS (
    -- The rows, deleted.
    DELETE FROM ff_worker_registry AS w
    USING gone AS g
    WHERE
        w.ctid = g.row_id
        AND (w.partition_key = g.partition_key) IS TRUE
        AND (w.namespace = g.namespace) IS TRUE
        AND (w.worker_instance_id = g.worker_instance_id) IS TRUE
    RETURNING
        w.partition_key,
        w.namespace,
        w.worker_instance_id
),
told AS (
    -- Their events.
    INSERT INTO ff_worker_registry_event (partition_key, namespace, worker_instance_id, event_kind, event_at_ms)
    SELECT
        s.partition_key,
        s.namespace,
        s.worker_instance_id,
        'ttl_swept',
        (SELECT now_ms FROM clock)
    FROM swept AS s
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS swept
FROM swept AS s;

-- name: PruneWorkerEvents :execrows
-- PruneWorkerEvents deletes events of workers older than keep_ms, the oldest first.
--
-- Used by: upkeep.PruneWorkerEvents.
-- Locks: workers skips (events FOR UPDATE, then the DELETE). Spans partitions.
DELETE FROM ff_worker_registry_event AS v
USING (
    SELECT
        o.ctid::tid AS row_id,
        o.partition_key,
        o.namespace,
        o.worker_instance_id,
        o.event_at_ms,
        o.event_kind
    FROM ff_worker_registry_event AS o
    WHERE o.event_at_ms < ffx_now_ms(sqlc.narg(now_ms)) - @keep_ms::bigint
    ORDER BY o.event_at_ms
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
) AS o
WHERE
    v.ctid = o.row_id
    AND (v.partition_key = o.partition_key) IS TRUE
    AND v.namespace = o.namespace
    AND v.worker_instance_id = o.worker_instance_id
    AND v.event_at_ms = o.event_at_ms
    AND (v.event_kind = o.event_kind) IS TRUE;
