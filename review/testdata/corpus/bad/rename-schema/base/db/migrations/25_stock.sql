-- migrate:up
CREATE SCHEMA stock;
CREATE TABLE stock.shelf (id bigint PRIMARY KEY, room text NOT NULL);

-- migrate:down
DROP TABLE stock.shelf;
DROP SCHEMA stock;
