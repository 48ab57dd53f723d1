-- name: Listen :exec
LISTEN orders;

-- name: Empty :exec
TRUNCATE attic;
