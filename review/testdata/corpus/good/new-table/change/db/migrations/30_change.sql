-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE TABLE gift (id bigint PRIMARY KEY, order_id bigint NOT NULL);
CREATE INDEX gift_order ON gift (order_id);

-- migrate:down
DROP TABLE gift;
