-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER INDEX orders_placed RENAME TO orders_by_time;

-- migrate:down
ALTER INDEX orders_by_time RENAME TO orders_placed;
