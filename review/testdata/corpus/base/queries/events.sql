-- name: AddEvent :exec
-- Used by: shop.Record.
INSERT INTO event (order_id, body) VALUES (@order_id, @body);

-- name: GetEvent :one
-- Used by: shop.History.
SELECT id, order_id, body FROM event WHERE id = @id;
