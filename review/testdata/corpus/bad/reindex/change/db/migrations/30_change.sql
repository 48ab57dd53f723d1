-- migrate:up
SET LOCAL lock_timeout = '2s';
REINDEX TABLE orders;

-- migrate:down
SELECT 1;
