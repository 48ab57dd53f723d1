-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP VIEW order_amount;

-- migrate:down
CREATE VIEW order_amount AS SELECT id, customer_id, amount FROM orders;
