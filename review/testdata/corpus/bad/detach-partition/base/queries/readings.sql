-- name: ListReadings :many
SELECT value FROM reading WHERE at = @at LIMIT 50;
