-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE event ADD COLUMN customer_id bigint REFERENCES customer;
CREATE INDEX event_customer ON event (customer_id);

-- migrate:down
ALTER TABLE event DROP COLUMN customer_id;
