-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN ticket text UNIQUE;

-- migrate:down
ALTER TABLE orders DROP COLUMN ticket;
