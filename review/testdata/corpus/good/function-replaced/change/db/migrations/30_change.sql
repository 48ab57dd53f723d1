-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE OR REPLACE FUNCTION with_tax(amount int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT amount * 119 / 100';

-- migrate:down
CREATE OR REPLACE FUNCTION with_tax(amount int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT amount * 12 / 10';
