-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN gift text;

-- migrate:down
ALTER TABLE orders DROP COLUMN gift;
