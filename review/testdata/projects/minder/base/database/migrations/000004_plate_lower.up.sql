ALTER TABLE vehicles DROP CONSTRAINT vehicles_garage_id_plate_key;
CREATE UNIQUE INDEX vehicles_garage_plate_lower_idx ON vehicles (garage_id, LOWER(plate));
