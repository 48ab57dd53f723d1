-- name: ListGifts :many
SELECT id FROM gift WHERE order_id = @order_id;
