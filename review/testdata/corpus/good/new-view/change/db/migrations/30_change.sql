-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE VIEW latest AS SELECT id, placed_at FROM orders;

-- migrate:down
DROP VIEW latest;
