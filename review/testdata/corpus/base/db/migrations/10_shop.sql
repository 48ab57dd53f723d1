-- migrate:up
CREATE TYPE status AS ENUM ('new', 'paid', 'sent');
CREATE TABLE customer (
    id bigint PRIMARY KEY,
    email text NOT NULL UNIQUE,
    name text NOT NULL,
    code varchar(50) NOT NULL,
    note text,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customer,
    status status NOT NULL DEFAULT 'new',
    amount int NOT NULL,
    comment text,
    hits int NOT NULL DEFAULT 0,
    placed_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
CREATE INDEX orders_customer ON orders (customer_id);
CREATE TABLE event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id bigint NOT NULL,
    body jsonb NOT NULL
);
CREATE TABLE total (name text PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE attic (id bigint PRIMARY KEY, what text NOT NULL);
CREATE VIEW order_amount AS SELECT id, customer_id, amount FROM orders;
CREATE FUNCTION with_tax(amount int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT amount * 12 / 10';

-- migrate:down
DROP FUNCTION with_tax(int);
DROP VIEW order_amount;
DROP TABLE attic, total, event, orders, customer;
DROP TYPE status;
