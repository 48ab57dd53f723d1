-- migrate:up
SET LOCAL lock_timeout = '2s';
DROP FUNCTION with_tax(int);
CREATE FUNCTION with_tax(amount int, rate int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT amount * (100 + rate) / 100';

-- migrate:down
DROP FUNCTION with_tax(int, int);
CREATE FUNCTION with_tax(amount int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT amount * 12 / 10';
