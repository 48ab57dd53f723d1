-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE attic ADD COLUMN more text;

-- migrate:down
ALTER TABLE attic DROP COLUMN mode;
