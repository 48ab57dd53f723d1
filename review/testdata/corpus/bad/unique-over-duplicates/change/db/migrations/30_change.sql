-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE UNIQUE INDEX customer_code ON customer (code);

-- migrate:down
DROP INDEX customer_code;
