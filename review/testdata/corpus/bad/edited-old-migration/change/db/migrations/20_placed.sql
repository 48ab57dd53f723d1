-- migrate:up
CREATE INDEX orders_placed ON orders (placed_at DESC, id);

-- migrate:down
DROP INDEX orders_placed;
