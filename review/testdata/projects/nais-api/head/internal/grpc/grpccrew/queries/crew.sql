-- name: Get :one
SELECT
	handle,
	purpose
FROM
	crews
WHERE
	handle = @handle
;
