-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY customer_created ON customer (created_at);

-- migrate:down transaction:false
DROP INDEX CONCURRENTLY customer_created;
