-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer SET (fillfactor = 90);

-- migrate:down
ALTER TABLE customer RESET (fillfactor);
