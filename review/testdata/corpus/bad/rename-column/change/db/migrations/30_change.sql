-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer RENAME COLUMN name TO full_name;

-- migrate:down
ALTER TABLE customer RENAME COLUMN full_name TO name;
