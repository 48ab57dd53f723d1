-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ALTER COLUMN placed_at DROP DEFAULT;

-- migrate:down
ALTER TABLE orders ALTER COLUMN placed_at SET DEFAULT now();
