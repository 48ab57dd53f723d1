-- name: ListEvents :many
SELECT id, body FROM event WHERE order_id = @order_id;
