-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION touch_updated_at() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
	NEW.updated_at = NOW();
	RETURN NEW;
END
$$
;
-- +goose StatementEnd
CREATE DOMAIN handle AS TEXT CHECK (value ~ '^[a-z][a-z0-9-]{1,28}[a-z0-9]$')
;

CREATE TYPE berth_kind AS ENUM('quay', 'buoy')
;

CREATE TABLE crews (
	handle handle PRIMARY KEY,
	purpose TEXT NOT NULL,
	updated_at TIMESTAMPTZ DEFAULT NOW() NOT NULL,
	disbanded_at TIMESTAMPTZ
)
;

CREATE TABLE berths (
	id UUID DEFAULT gen_random_uuid() PRIMARY KEY,
	crew_handle handle NOT NULL REFERENCES crews (handle) ON DELETE CASCADE,
	kind berth_kind NOT NULL,
	harbour TEXT NOT NULL,
	UNIQUE (crew_handle, harbour)
)
;

CREATE TRIGGER crews_touch BEFORE UPDATE ON crews FOR EACH ROW
EXECUTE PROCEDURE touch_updated_at ()
;
