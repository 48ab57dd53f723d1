-- migrate:up
CREATE INDEX orders_placed ON orders (placed_at);

-- migrate:down
DROP INDEX orders_placed;
