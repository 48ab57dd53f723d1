-- +goose Up
DROP INDEX log_entries_crew_idx
;

CREATE INDEX log_entries_crew_created_at_idx ON log_entries (crew_handle, created_at DESC)
;

CREATE INDEX old_log_entries_crew_created_at_idx ON old_log_entries (crew_handle, created_at DESC)
;

REFRESH MATERIALIZED VIEW fuel_monthly
;

-- +goose Down
DROP INDEX old_log_entries_crew_created_at_idx
;

DROP INDEX log_entries_crew_created_at_idx
;

CREATE INDEX log_entries_crew_idx ON log_entries (crew_handle)
;
