-- name: AddEvent :exec
-- Used by: shop.Record.
INSERT INTO history (order_id, body) VALUES (@order_id, @body);

-- name: GetEvent :one
-- Used by: shop.History.
SELECT id, order_id, body FROM history WHERE id = @id;
