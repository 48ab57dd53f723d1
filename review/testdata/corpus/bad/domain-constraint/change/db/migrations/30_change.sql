-- migrate:up
CREATE DOMAIN phone AS text;
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN phone phone;

-- migrate:down
ALTER TABLE orders DROP COLUMN phone;
DROP DOMAIN phone;
