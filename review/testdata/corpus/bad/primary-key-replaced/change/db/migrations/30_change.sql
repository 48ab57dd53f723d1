-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE event DROP CONSTRAINT event_pkey, ADD PRIMARY KEY (order_id, id);

-- migrate:down
ALTER TABLE event DROP CONSTRAINT event_pkey, ADD PRIMARY KEY (id);
