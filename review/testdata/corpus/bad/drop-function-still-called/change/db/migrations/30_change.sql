-- migrate:up
DROP FUNCTION with_tax(int);

-- migrate:down
CREATE FUNCTION with_tax(amount int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT amount * 12 / 10';
