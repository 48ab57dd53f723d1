-- name: Add :exec
INSERT INTO
	log_entries (actor, action, crew_handle, data)
VALUES
	(@actor, @action, sqlc.narg('crew_handle'), @data)
;

-- name: ListForCrew :many
SELECT
	*
FROM
	all_log_entries
WHERE
	crew_handle = @crew_handle
ORDER BY
	created_at DESC
LIMIT
	50
;

-- name: RefreshOld :exec
REFRESH MATERIALIZED VIEW old_log_entries
;
