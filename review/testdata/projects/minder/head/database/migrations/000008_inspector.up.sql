BEGIN;

ALTER TABLE inspections ADD COLUMN inspector TEXT;
CREATE INDEX inspections_inspector_idx ON inspections (inspector);

COMMIT;
