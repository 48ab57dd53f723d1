-- +goose Up
CREATE TABLE log_entries (
	id UUID DEFAULT gen_random_uuid() PRIMARY KEY,
	created_at TIMESTAMPTZ DEFAULT NOW() NOT NULL,
	actor TEXT NOT NULL,
	action TEXT NOT NULL,
	crew_handle handle,
	data BYTEA
)
;

CREATE INDEX log_entries_crew_idx ON log_entries (crew_handle)
;

-- +goose Down
DROP TABLE log_entries
;
