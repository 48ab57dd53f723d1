-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE event RENAME TO history;

-- migrate:down
ALTER TABLE history RENAME TO event;
