-- +goose Up
CREATE MATERIALIZED VIEW old_log_entries AS
SELECT
	id,
	created_at,
	actor,
	crew_handle
FROM
	log_entries
WHERE
	action = 'archived'
;

CREATE VIEW all_log_entries AS
SELECT
	id,
	created_at,
	actor,
	crew_handle
FROM
	log_entries
UNION ALL
SELECT
	id,
	created_at,
	actor,
	crew_handle
FROM
	old_log_entries
;
