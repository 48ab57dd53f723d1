-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD CONSTRAINT orders_owner FOREIGN KEY (customer_id) REFERENCES customer NOT VALID;

-- migrate:down
ALTER TABLE orders DROP CONSTRAINT orders_owner;
