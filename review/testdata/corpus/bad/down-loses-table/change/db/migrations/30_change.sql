-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP TABLE attic;

-- migrate:down
CREATE TABLE attic (id bigint PRIMARY KEY, what text NOT NULL);
