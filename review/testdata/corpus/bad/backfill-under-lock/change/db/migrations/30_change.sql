-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD COLUMN copied text;
UPDATE orders SET copied = comment;

-- migrate:down
ALTER TABLE orders DROP COLUMN copied;
