-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP TABLE orders CASCADE;

-- migrate:down
-- irreversible: the shop is closed
