-- migrate:up
CREATE SCHEMA archive;
SET LOCAL lock_timeout = '2s';
ALTER TABLE event SET SCHEMA archive;

-- migrate:down
ALTER TABLE archive.event SET SCHEMA public;
DROP SCHEMA archive;
