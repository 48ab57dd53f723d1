-- name: GetCustomer :one
-- Used by: shop.Profile.
SELECT id, email, name, note, created_at FROM customer WHERE id = @id;

-- name: AddCustomer :exec
-- Used by: shop.Register.
INSERT INTO customer (id, email, name, code) VALUES (@id, @email, @name, @code);

-- name: RenameCustomer :execrows
-- Used by: shop.Rename.
UPDATE customer SET name = @name WHERE id = @id;
