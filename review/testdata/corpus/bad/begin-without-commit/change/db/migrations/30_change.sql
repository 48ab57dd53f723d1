-- migrate:up transaction:false
BEGIN;
CREATE TABLE shelf (id bigint PRIMARY KEY);

-- migrate:down
DROP TABLE shelf;
