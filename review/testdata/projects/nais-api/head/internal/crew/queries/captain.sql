-- name: SetCaptain :exec
UPDATE crews
SET
	captain = @captain
WHERE
	handle = @handle
;
