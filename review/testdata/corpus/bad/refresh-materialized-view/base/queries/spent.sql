-- name: GetSpent :one
SELECT amount FROM spent WHERE customer_id = @customer_id;
