BEGIN;

DROP TABLE inspections;

COMMIT;
