-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE event ADD COLUMN no bigserial;

-- migrate:down
ALTER TABLE event DROP COLUMN no;
