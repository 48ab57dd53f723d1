-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE attic ADD COLUM;

-- migrate:down
SELECT 1;
