-- name: ListBuyers :many
SELECT DISTINCT customer.* FROM customer JOIN orders ON orders.customer_id = customer.id WHERE orders.status = @status LIMIT 20;
