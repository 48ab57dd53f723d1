-- name: CreateVehicle :one
INSERT INTO vehicles (garage_id, kind, plate, traits)
VALUES ($1, $2, LOWER(sqlc.arg(plate)), sqlc.arg(traits)::trait[]) RETURNING *;

-- name: GetVehicleByPlate :one
SELECT * FROM vehicles WHERE garage_id = $1 AND LOWER(plate) = LOWER(sqlc.arg(plate));

-- name: ListVehicles :many
SELECT * FROM vehicles
WHERE garage_id = $1 AND (id >= sqlc.narg('next_id') OR sqlc.narg('next_id') IS NULL)
ORDER BY garage_id, id LIMIT sqlc.arg('max')::bigint;

-- name: CountVehiclesByKind :many
SELECT kind, COUNT(*) AS number FROM vehicles WHERE kind = ANY (sqlc.arg(kinds)::vehicle_kind[]) GROUP BY kind;

-- name: SetTraits :exec
UPDATE vehicles SET traits = $2 WHERE id = $1;
