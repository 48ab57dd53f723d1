-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders VALIDATE CONSTRAINT orders_hits;

-- migrate:down
-- irreversible: a constraint that is valid stays so
