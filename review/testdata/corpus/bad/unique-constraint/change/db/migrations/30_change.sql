-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD CONSTRAINT orders_once UNIQUE (id, customer_id);

-- migrate:down
ALTER TABLE orders DROP CONSTRAINT orders_once;
