-- migrate:up
SET LOCAL lock_timeout = '2s';
UPDATE orders SET comment = 'first' WHERE id < 5 AND comment IS NULL;

-- migrate:down
-- irreversible: the rows keep it
