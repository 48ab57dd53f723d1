ALTER TABLE vehicles DROP COLUM traits;
DROP TYPE trait;
