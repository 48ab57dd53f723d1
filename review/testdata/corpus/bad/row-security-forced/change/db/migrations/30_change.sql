-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY recent ON customer USING (created_at > now() - interval '1 year');

-- migrate:down
DROP POLICY recent ON customer;
ALTER TABLE customer DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
