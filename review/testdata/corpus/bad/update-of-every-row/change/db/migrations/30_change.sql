-- migrate:up
SET LOCAL lock_timeout = '2s';
UPDATE orders SET comment = 'none';

-- migrate:down
-- irreversible: the comments are gone
