-- name: FindComment :many
-- Used by: shop.Find.
SELECT id FROM orders WHERE comment = @comment;
