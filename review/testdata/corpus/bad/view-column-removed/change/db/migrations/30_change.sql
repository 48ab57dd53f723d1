-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP VIEW order_amount;
CREATE VIEW order_amount AS SELECT id, customer_id FROM orders;

-- migrate:down
DROP VIEW order_amount;
CREATE VIEW order_amount AS SELECT id, customer_id, amount FROM orders;
