-- +goose Up
CREATE TABLE radios (
	crew_handle handle PRIMARY KEY REFERENCES crews (handle) ON DELETE CASCADE,
	channels INT[] NOT NULL DEFAULT '{}',
	kinds berth_kind[] NOT NULL DEFAULT '{quay}'
)
;

-- +goose Down
DROP TABLE radios;
