-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP TABLE attic;
CREATE TABLE attic (id bigint PRIMARY KEY, what text NOT NULL);

-- migrate:down
DROP TABLE attic;
CREATE TABLE attic (id bigint PRIMARY KEY, what text NOT NULL);
