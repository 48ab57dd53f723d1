-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP TABLE event;

-- migrate:down
CREATE TABLE event (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id bigint NOT NULL, body jsonb NOT NULL);
