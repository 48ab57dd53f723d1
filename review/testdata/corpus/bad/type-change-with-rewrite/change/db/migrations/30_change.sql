-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP VIEW order_amount;
ALTER TABLE orders ALTER COLUMN amount TYPE bigint;
CREATE VIEW order_amount AS SELECT id, customer_id, amount FROM orders;

-- migrate:down
DROP VIEW order_amount;
ALTER TABLE orders ALTER COLUMN amount TYPE int;
CREATE VIEW order_amount AS SELECT id, customer_id, amount FROM orders;
