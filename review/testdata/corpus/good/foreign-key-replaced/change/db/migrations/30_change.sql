-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD CONSTRAINT orders_customer FOREIGN KEY (customer_id) REFERENCES customer ON DELETE RESTRICT NOT VALID;
ALTER TABLE orders DROP CONSTRAINT orders_customer_id_fkey;

-- migrate:down
ALTER TABLE orders ADD CONSTRAINT orders_customer_id_fkey FOREIGN KEY (customer_id) REFERENCES customer;
ALTER TABLE orders DROP CONSTRAINT orders_customer;
