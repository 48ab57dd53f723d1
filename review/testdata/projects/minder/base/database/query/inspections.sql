-- name: AddInspection :one
INSERT INTO inspections (vehicle_id, verdict, details) VALUES ($1, $2, $3) RETURNING id;

-- name: ListInspections :many
SELECT i.id, i.verdict, i.made_at, v.plate
FROM inspections i JOIN vehicles v ON v.id = i.vehicle_id
WHERE i.vehicle_id = $1 ORDER BY i.made_at DESC LIMIT 20;

-- name: GetLatestVerdict :one
SELECT verdict FROM latest_verdicts WHERE vehicle_id = $1;
