BEGIN;

ALTER TABLE inspections DROP COLUMN inspector;

COMMIT;
