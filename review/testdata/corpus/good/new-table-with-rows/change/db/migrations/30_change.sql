-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE TABLE colour (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO colour SELECT n, 'colour ' || n FROM generate_series(1, 100) AS n;

-- migrate:down
DROP TABLE colour;
