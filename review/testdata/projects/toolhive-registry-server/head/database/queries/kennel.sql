-- name: GetKennelByName :one
SELECT id, name, kind, created_at FROM source WHERE name = sqlc.arg(name);

-- name: ListKennels :many
SELECT id, name, kind FROM source
WHERE (sqlc.narg(next)::timestamp with time zone IS NULL OR created_at > sqlc.narg(next))
ORDER BY name LIMIT sqlc.arg(size)::bigint;

-- name: InsertKennel :one
INSERT INTO source (name, kind) VALUES (sqlc.arg(name), sqlc.arg(kind)) RETURNING id;

-- name: DeleteKennel :execrows
DELETE FROM source WHERE id = sqlc.arg(id);
