-- name: GetOrder :one
-- Used by: shop.Order.
SELECT id, customer_id, status, amount, comment FROM orders WHERE id = @id;

-- name: ListOrders :many
-- Used by: shop.Orders.
SELECT id, status, amount FROM orders WHERE customer_id = @customer_id ORDER BY id LIMIT 50;

-- name: LatestOrders :many
-- Used by: shop.Latest.
SELECT id, amount FROM orders ORDER BY placed_at DESC LIMIT 20;

-- name: PlaceOrder :exec
-- Used by: shop.Place.
INSERT INTO orders (id, customer_id, amount, placed_at) VALUES (@id, @customer_id, @amount, @placed_at);

-- name: HitOrder :exec
-- Used by: shop.Look.
UPDATE orders SET hits = hits + 1 WHERE id = @id;

-- name: SetStatus :execrows
-- Used by: shop.Pay, shop.Send.
UPDATE orders SET status = @status WHERE id = @id;

-- name: AmountWithTax :one
-- Used by: shop.Invoice.
SELECT with_tax(amount)::int AS amount FROM orders WHERE id = @id;

-- name: GetAmount :one
-- Used by: shop.Invoice.
SELECT amount FROM order_amount WHERE id = @id;
