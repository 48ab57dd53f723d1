-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ADD COLUMN extra json;

-- migrate:down
ALTER TABLE customer DROP COLUMN extra;
