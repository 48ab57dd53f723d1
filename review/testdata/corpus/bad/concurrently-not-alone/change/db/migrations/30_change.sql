-- migrate:up transaction:false
SET lock_timeout = '2s';
CREATE INDEX CONCURRENTLY orders_amount ON orders (amount);

-- migrate:down transaction:false
DROP INDEX orders_amount;
