-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE STATISTICS orders_together ON customer_id, status FROM orders;

-- migrate:down
DROP STATISTICS orders_together;
