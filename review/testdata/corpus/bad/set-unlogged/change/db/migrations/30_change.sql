-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE event SET UNLOGGED;

-- migrate:down
ALTER TABLE event SET LOGGED;
