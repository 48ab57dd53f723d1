-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer VALIDATE CONSTRAINT customer_name;

-- migrate:down
-- irreversible: a constraint that is valid stays so
