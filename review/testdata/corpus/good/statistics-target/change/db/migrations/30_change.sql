-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ALTER COLUMN amount SET STATISTICS 500;

-- migrate:down
ALTER TABLE orders ALTER COLUMN amount SET STATISTICS -1;
