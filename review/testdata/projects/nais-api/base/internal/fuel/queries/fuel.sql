-- name: Upsert :batchexec
INSERT INTO
	fuel (crew_handle, harbour, day, litres)
VALUES
	(@crew_handle, @harbour, @day, @litres)
ON CONFLICT ON CONSTRAINT fuel_day_key DO UPDATE
SET
	litres = EXCLUDED.litres
;

-- name: Monthly :many
SELECT
	*
FROM
	fuel_monthly
WHERE
	crew_handle = @crew_handle
ORDER BY
	month DESC
LIMIT
	12
;

-- name: RefreshMonthly :exec
REFRESH MATERIALIZED VIEW CONCURRENTLY fuel_monthly
;

-- name: LastDay :one
SELECT
	MAX(day)::DATE AS day
FROM
	fuel
;
