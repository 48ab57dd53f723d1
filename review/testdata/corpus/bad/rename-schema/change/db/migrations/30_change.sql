-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER SCHEMA stock RENAME TO store;

-- migrate:down
ALTER SCHEMA store RENAME TO stock;
