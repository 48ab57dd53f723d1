-- migrate:up
-- For the latest ones.
CREATE INDEX orders_placed ON orders (placed_at);

-- migrate:down
DROP INDEX orders_placed;
