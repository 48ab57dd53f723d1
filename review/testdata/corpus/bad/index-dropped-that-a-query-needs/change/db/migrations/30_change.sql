-- migrate:up transaction:false
DROP INDEX CONCURRENTLY orders_customer;

-- migrate:down transaction:false
CREATE INDEX CONCURRENTLY orders_customer ON orders (customer_id);
