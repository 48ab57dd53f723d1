-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN token uuid NOT NULL DEFAULT gen_random_uuid();

-- migrate:down
ALTER TABLE orders DROP COLUMN token;
