-- +goose Up
CREATE MATERIALIZED VIEW fuel_monthly AS
SELECT
	crew_handle,
	date_trunc('month', day)::DATE AS month,
	SUM(litres)::REAL AS litres
FROM
	fuel
GROUP BY
	crew_handle,
	month
;

CREATE UNIQUE INDEX ON fuel_monthly (crew_handle, month)
;
