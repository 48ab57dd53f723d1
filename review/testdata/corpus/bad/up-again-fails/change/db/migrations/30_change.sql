-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE TABLE shelf (id bigint PRIMARY KEY);

-- migrate:down
SELECT 1;
