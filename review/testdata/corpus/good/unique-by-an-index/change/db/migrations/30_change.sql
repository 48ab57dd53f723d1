-- migrate:up transaction:false
CREATE UNIQUE INDEX CONCURRENTLY event_once ON event (order_id, id);

-- migrate:down transaction:false
DROP INDEX CONCURRENTLY event_once;
