-- name: CreateGarage :one
INSERT INTO garages (name, parent_id, metadata) VALUES ($1, $2, sqlc.arg(metadata)::jsonb) RETURNING *;

-- name: GetGarageByID :one
SELECT * FROM garages WHERE id = $1;

-- GetSubGarages returns the garage and all garages below it.

-- name: GetSubGarages :many
WITH RECURSIVE below AS (
    SELECT id, parent_id FROM garages WHERE garages.id = $1
    UNION ALL
    SELECT g.id, g.parent_id FROM garages g JOIN below b ON g.parent_id = b.id
)
SELECT id, parent_id FROM below;

-- name: LockGarage :exec
SELECT pg_advisory_xact_lock(hashtext(sqlc.arg(garage)::text));

-- name: DeleteGarage :many
DELETE FROM garages WHERE id = $1 RETURNING id;
