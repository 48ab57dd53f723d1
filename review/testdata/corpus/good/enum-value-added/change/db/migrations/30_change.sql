-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TYPE status ADD VALUE 'lost';

-- migrate:down
-- irreversible: values of an enum stay
