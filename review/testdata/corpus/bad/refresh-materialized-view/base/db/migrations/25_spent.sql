-- migrate:up
CREATE MATERIALIZED VIEW spent AS SELECT customer_id, sum(amount) AS amount FROM orders GROUP BY customer_id;
CREATE UNIQUE INDEX spent_customer ON spent (customer_id);

-- migrate:down
DROP MATERIALIZED VIEW spent;
