-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ENABLE ROW LEVEL SECURITY;

-- migrate:down
ALTER TABLE customer DISABLE ROW LEVEL SECURITY;
