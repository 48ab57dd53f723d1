-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE INDEX orders_amount ON orders (amount);

-- migrate:down
DROP INDEX orders_amount;
