-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN channel text NOT NULL DEFAULT 'web';
ALTER TABLE orders ALTER COLUMN channel DROP DEFAULT;

-- migrate:down
ALTER TABLE orders DROP COLUMN channel;
