-- migrate:up
CREATE INDEX CONCURRENTLY orders_amount ON orders (amount);

-- migrate:down
DROP INDEX orders_amount;
