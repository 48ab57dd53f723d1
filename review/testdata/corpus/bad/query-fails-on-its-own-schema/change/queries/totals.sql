-- name: AddTotal :exec
-- Used by: shop.Count.
INSERT INTO total (name, n) VALUES (@name, @n);
