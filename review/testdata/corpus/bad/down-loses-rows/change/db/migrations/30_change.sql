-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE attic DROP COLUMN what;

-- migrate:down
ALTER TABLE attic ADD COLUMN what text NOT NULL DEFAULT '';
