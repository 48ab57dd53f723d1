-- name: Get :one
SELECT
	*
FROM
	crews
WHERE
	handle = @handle
;

-- name: List :many
SELECT
	*
FROM
	crews
WHERE
	disbanded_at IS NULL
ORDER BY
	handle
LIMIT
	sqlc.arg('limit')
OFFSET
	sqlc.arg('offset')
;

-- name: ListByHandles :many
SELECT
	*
FROM
	crews
WHERE
	handle = ANY (@handles::handle[])
ORDER BY
	handle
;

-- name: Create :one
INSERT INTO
	crews (handle, purpose)
VALUES
	(@handle, @purpose)
RETURNING
	*
;

-- name: UpsertBerth :exec
INSERT INTO
	berths (crew_handle, kind, harbour)
VALUES
	(@crew_handle, @kind, @harbour)
ON CONFLICT (crew_handle, harbour) DO UPDATE
SET
	kind = EXCLUDED.kind
;
