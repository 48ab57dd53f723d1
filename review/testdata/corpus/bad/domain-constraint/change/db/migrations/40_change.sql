-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER DOMAIN phone ADD CONSTRAINT digits CHECK (VALUE ~ '^[0-9]+$');

-- migrate:down
ALTER DOMAIN phone DROP CONSTRAINT digits;
