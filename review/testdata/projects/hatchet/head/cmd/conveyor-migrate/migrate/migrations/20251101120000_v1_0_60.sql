-- +goose Up
ALTER TYPE "ParcelState" ADD VALUE IF NOT EXISTS 'RETURNED';

ALTER TABLE v1_queue_item ADD COLUMN retry_count INTEGER NOT NULL DEFAULT 0;

ALTER TABLE v1_parcel ADD COLUMN weight INTEGER;

CREATE INDEX v1_parcel_external_id_idx ON v1_parcel (external_id);

-- +goose Down
DROP INDEX v1_parcel_external_id_idx;
ALTER TABLE v1_parcel DROP COLUMN weight;
ALTER TABLE v1_queue_item DROP COLUMN retry_count;
