-- name: Health :one
SELECT 1::int AS alive;
