-- migrate:up
SET LOCAL lock_timeout = '2s';
-- review: allow lock-blocks-writers until 2027-01-31: orders has a hundred rows everywhere
CREATE INDEX orders_amount ON orders (amount);

-- migrate:down
DROP INDEX orders_amount;
