-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN no bigint GENERATED ALWAYS AS IDENTITY;

-- migrate:down
ALTER TABLE orders DROP COLUMN no;
