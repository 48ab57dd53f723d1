-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE event ADD CONSTRAINT event_once UNIQUE USING INDEX event_once;

-- migrate:down
ALTER TABLE event DROP CONSTRAINT event_once;
CREATE UNIQUE INDEX event_once ON event (order_id, id);
