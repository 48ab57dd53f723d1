-- name: GetColour :one
SELECT colour FROM orders WHERE id = @id;
