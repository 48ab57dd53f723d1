-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE total ADD COLUMN unit text NOT NULL DEFAULT 'piece';
ALTER TABLE total ALTER unit DROP DEFAULT;

-- migrate:down
ALTER TABLE total DROP COLUMN unit;
