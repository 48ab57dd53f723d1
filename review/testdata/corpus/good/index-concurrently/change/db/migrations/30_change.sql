-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY event_order ON event (order_id);

-- migrate:down transaction:false
DROP INDEX CONCURRENTLY event_order;
