-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE FUNCTION half(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT n / 2';

-- migrate:down
DROP FUNCTION half(int);
