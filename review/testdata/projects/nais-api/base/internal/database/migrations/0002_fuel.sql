-- +goose Up
CREATE TABLE fuel (
	id SERIAL PRIMARY KEY,
	crew_handle handle NOT NULL REFERENCES crews (handle) ON DELETE CASCADE,
	harbour TEXT,
	day DATE NOT NULL,
	litres REAL NOT NULL
)
;

ALTER TABLE fuel
ADD CONSTRAINT fuel_day_key UNIQUE NULLS NOT DISTINCT (crew_handle, harbour, day)
;
