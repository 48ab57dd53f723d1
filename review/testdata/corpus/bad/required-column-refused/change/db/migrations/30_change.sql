-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN referrer text NOT NULL;

-- migrate:down
ALTER TABLE orders DROP COLUMN referrer;
