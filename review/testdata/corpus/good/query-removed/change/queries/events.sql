-- name: AddEvent :exec
-- Used by: shop.Record.
INSERT INTO event (order_id, body) VALUES (@order_id, @body);
