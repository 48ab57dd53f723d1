-- migrate:up
SET LOCAL lock_timeout = '2s';
DELETE FROM event;

-- migrate:down
-- irreversible: nobody reads them
