-- migrate:up
SET LOCAL lock_timeout = '2s';
LOCK TABLE orders IN EXCLUSIVE MODE;
CREATE TABLE report AS SELECT customer_id, sum(amount) AS amount FROM orders GROUP BY customer_id;

-- migrate:down
DROP TABLE report;
