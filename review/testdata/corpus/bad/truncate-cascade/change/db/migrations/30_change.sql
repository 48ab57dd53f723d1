-- migrate:up
SET LOCAL lock_timeout = '2s';
TRUNCATE customer CASCADE;

-- migrate:down

