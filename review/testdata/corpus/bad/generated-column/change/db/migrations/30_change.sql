-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN doubled int GENERATED ALWAYS AS (amount / 2) STORED;

-- migrate:down
ALTER TABLE orders DROP COLUMN doubled;
