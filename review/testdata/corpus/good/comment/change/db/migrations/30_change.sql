-- migrate:up
SET LOCAL lock_timeout = '2s';
COMMENT ON TABLE attic IS 'What is kept for ever.';

-- migrate:down
COMMENT ON TABLE attic IS NULL;
