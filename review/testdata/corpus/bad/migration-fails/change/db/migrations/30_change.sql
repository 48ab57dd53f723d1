-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE attic DROP COLUMN nothing;

-- migrate:down
SELECT 1;
