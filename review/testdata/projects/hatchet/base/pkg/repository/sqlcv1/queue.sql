-- name: TryLockBelt :one
SELECT pg_try_advisory_xact_lock(@key::bigint);

-- name: ListQueueItems :many
SELECT * FROM v1_queue_item
WHERE depot_id = @depotId::uuid AND belt = @belt::text AND (sqlc.narg('gtId')::bigint IS NULL OR id >= sqlc.narg('gtId')::bigint)
ORDER BY priority DESC, id ASC LIMIT COALESCE(sqlc.narg('limit')::integer, 100);

-- name: BulkQueueItems :many
WITH locked AS (
    SELECT id FROM v1_queue_item WHERE id = ANY (@ids::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
)
DELETE FROM v1_queue_item WHERE id IN (SELECT id FROM locked) RETURNING id;
