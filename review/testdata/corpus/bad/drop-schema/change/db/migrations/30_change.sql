-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP SCHEMA public CASCADE;
CREATE SCHEMA public;

-- migrate:down

