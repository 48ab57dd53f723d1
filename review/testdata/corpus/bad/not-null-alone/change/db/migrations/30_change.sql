-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ALTER COLUMN note SET NOT NULL;

-- migrate:down
ALTER TABLE customer ALTER COLUMN note DROP NOT NULL;
