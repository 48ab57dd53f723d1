-- +goose Up
ALTER TYPE berth_kind
ADD VALUE 'mooring'
;

ALTER TABLE crews
ADD COLUMN captain TEXT
;

-- +goose Down
ALTER TABLE crews
DROP COLUMN captain
;
