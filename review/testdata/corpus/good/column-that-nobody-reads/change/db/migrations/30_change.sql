-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE attic DROP COLUMN what;

-- migrate:down
-- irreversible: nobody reads it
