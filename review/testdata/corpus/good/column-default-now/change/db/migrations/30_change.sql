-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ADD COLUMN seen_at timestamptz NOT NULL DEFAULT now();

-- migrate:down
ALTER TABLE customer DROP COLUMN seen_at;
