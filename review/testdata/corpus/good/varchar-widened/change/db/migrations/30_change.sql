-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ALTER COLUMN code TYPE varchar(100);

-- migrate:down
-- irreversible: longer codes may be there
