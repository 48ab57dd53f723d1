-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY orders_hits ON orders (hits);

-- migrate:down transaction:false
DROP INDEX CONCURRENTLY orders_hits;
