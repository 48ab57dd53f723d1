-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ALTER COLUMN name DROP NOT NULL;

-- migrate:down
ALTER TABLE customer ALTER COLUMN name SET NOT NULL;
