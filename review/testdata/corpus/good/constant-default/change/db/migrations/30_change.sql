-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN channel text NOT NULL DEFAULT 'web';

-- migrate:down
ALTER TABLE orders DROP COLUMN channel;
