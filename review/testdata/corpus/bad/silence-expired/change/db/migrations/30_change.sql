-- migrate:up
SET LOCAL lock_timeout = '2s';
-- review: allow lock-blocks-writers until 2026-01-31: nobody writes at night
CREATE INDEX orders_amount ON orders (amount);

-- migrate:down
DROP INDEX orders_amount;
