-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE TYPE status_less AS ENUM ('new', 'paid', 'sent', 'void');
ALTER TABLE orders ALTER COLUMN status DROP DEFAULT;
ALTER TABLE orders ALTER COLUMN status TYPE status_less USING status::text::status_less;
ALTER TABLE orders ALTER COLUMN status SET DEFAULT 'new';
DROP TYPE status;
ALTER TYPE status_less RENAME TO status;

-- migrate:down
SELECT 1;
