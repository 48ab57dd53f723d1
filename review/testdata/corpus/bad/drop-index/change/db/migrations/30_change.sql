-- migrate:up
DROP INDEX orders_placed;

-- migrate:down
CREATE INDEX orders_placed ON orders (placed_at);
