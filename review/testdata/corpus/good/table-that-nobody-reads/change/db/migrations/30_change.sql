-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP TABLE attic;

-- migrate:down
-- irreversible: nothing has been written to it for a year
