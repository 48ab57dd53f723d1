-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ALTER COLUMN comment SET DEFAULT 'none';

-- migrate:down
ALTER TABLE orders ALTER COLUMN comment DROP DEFAULT;
