-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE attic ADD COLUMN rest text;

-- migrate:down
ALTER TABLE attic DROP COLUMN rest;
