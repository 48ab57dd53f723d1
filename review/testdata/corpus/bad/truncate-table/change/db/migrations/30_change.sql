-- migrate:up
SET LOCAL lock_timeout = '2s';
TRUNCATE event;

-- migrate:down

