-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE orders ADD CONSTRAINT orders_alone EXCLUDE USING btree (id WITH =);

-- migrate:down
ALTER TABLE orders DROP CONSTRAINT orders_alone;
