-- +goose Up
-- +goose NO TRANSACTION
ALTER TABLE v1_parcel DETACH PARTITION v1_parcel_rest;

CREATE TABLE v1_parcel_event_returned PARTITION OF v1_parcel_event FOR VALUES IN ('RETURNED');

-- +goose Down
DROP TABLE v1_parcel_event_returned;
ALTER TABLE v1_parcel ATTACH PARTITION v1_parcel_rest DEFAULT;
