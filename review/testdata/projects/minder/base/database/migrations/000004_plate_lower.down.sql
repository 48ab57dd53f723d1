DROP INDEX vehicles_garage_plate_lower_idx;
ALTER TABLE vehicles ADD UNIQUE (garage_id, plate);
