-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TYPE status ADD VALUE 'lost';
ALTER TABLE orders ALTER COLUMN status SET DEFAULT 'lost';

-- migrate:down
-- irreversible: values of an enum stay
