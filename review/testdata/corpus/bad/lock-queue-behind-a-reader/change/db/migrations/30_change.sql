-- migrate:up
ALTER TABLE orders ADD COLUMN gift boolean;

-- migrate:down
ALTER TABLE orders DROP COLUMN gift;
