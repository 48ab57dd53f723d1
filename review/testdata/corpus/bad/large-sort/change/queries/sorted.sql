-- name: ByAmount :many
-- Used by: shop.Rank.
SELECT id FROM orders ORDER BY amount, comment;
