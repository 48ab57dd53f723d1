-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ADD CONSTRAINT customer_name CHECK (length(name) < 1000000) NOT VALID;
ALTER TABLE customer VALIDATE CONSTRAINT customer_name;

-- migrate:down
ALTER TABLE customer DROP CONSTRAINT customer_name;
