-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ADD COLUMN profile json;

-- migrate:down
ALTER TABLE customer DROP COLUMN profile;
