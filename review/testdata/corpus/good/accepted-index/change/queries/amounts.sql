-- name: OrdersAbove :many
SELECT id, amount FROM orders WHERE amount > @amount ORDER BY amount LIMIT 20;
