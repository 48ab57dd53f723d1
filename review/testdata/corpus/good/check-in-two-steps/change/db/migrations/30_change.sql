-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ADD CONSTRAINT customer_name CHECK (length(name) < 1000000) NOT VALID;

-- migrate:down
ALTER TABLE customer DROP CONSTRAINT customer_name;
