-- name: UpsertSync :one
INSERT INTO kennel_sync (kennel_id, status, done, every, started_at)
VALUES (sqlc.arg(kennel_id), sqlc.arg(status), sqlc.arg(done), sqlc.narg(every), sqlc.arg(started_at))
ON CONFLICT (kennel_id) DO UPDATE SET status = EXCLUDED.status, started_at = EXCLUDED.started_at
RETURNING id;

-- name: DueSyncs :many
SELECT s.kennel_id, s.status, s.every FROM kennel_sync s
WHERE s.started_at + COALESCE(s.every, interval '30 minutes') < sqlc.arg(now)
ORDER BY s.started_at LIMIT 10;
