-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer DROP COLUMN note;

-- migrate:down
ALTER TABLE customer ADD COLUMN note text;
