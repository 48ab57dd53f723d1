-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ALTER placed_at TYPE timestamp;

-- migrate:down
ALTER TABLE orders ALTER placed_at TYPE timestamptz;
