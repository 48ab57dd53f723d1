-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD CONSTRAINT orders_hits CHECK (hits IS NOT NULL) NOT VALID;

-- migrate:down
ALTER TABLE orders DROP CONSTRAINT orders_hits;
