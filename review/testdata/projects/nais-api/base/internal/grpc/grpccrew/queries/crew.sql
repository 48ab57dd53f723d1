-- name: Get :one
SELECT
	handle,
	purpose
FROM
	crews
WHERE
	handle = @handle
;

-- name: Channels :one
SELECT
	channels,
	kinds
FROM
	radios
WHERE
	crew_handle = @crew_handle
;
