-- migrate:up
SET LOCAL lock_timeout = '2s';
CLUSTER orders USING orders_placed;

-- migrate:down
ALTER TABLE orders SET WITHOUT CLUSTER;
