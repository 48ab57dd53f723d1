-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE customer ALTER COLUMN name TYPE varchar(100);

-- migrate:down
ALTER TABLE customer ALTER COLUMN name TYPE text;
