-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY orders_customer_again ON orders (customer_id);

-- migrate:down transaction:false
DROP INDEX CONCURRENTLY orders_customer_again;
