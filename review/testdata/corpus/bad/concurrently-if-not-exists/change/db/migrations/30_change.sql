-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY IF NOT EXISTS orders_amount ON orders (amount);

-- migrate:down
DROP INDEX orders_amount;
