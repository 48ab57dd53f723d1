-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN weight int CHECK (weight > 0);

-- migrate:down
ALTER TABLE orders DROP COLUMN weight;
