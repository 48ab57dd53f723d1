-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE UNIQUE INDEX event_order ON event (order_id, id);

-- migrate:down
DROP INDEX event_order;
