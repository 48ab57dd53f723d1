-- migrate:up
SET LOCAL lock_timeout = '2s';
REFRESH MATERIALIZED VIEW spent;

-- migrate:down
-- irreversible: the rows of the view follow from others
