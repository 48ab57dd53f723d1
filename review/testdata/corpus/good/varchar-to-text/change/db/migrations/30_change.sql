-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ALTER COLUMN code TYPE text;

-- migrate:down
-- irreversible: longer codes may be there
