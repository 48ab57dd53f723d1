-- name: GetKennelByName :one
SELECT id, name, kind, created_at FROM kennel WHERE name = sqlc.arg(name);

-- name: ListKennels :many
SELECT id, name, kind FROM kennel
WHERE (sqlc.narg(next)::timestamp with time zone IS NULL OR created_at > sqlc.narg(next))
ORDER BY name LIMIT sqlc.arg(size)::bigint;

-- name: InsertKennel :one
INSERT INTO kennel (name, kind) VALUES (sqlc.arg(name), sqlc.arg(kind)) RETURNING id;

-- name: DeleteKennel :execrows
DELETE FROM kennel WHERE id = sqlc.arg(id);
