-- name: GetStatus :one
SELECT status FROM orders WHERE id = @id;
