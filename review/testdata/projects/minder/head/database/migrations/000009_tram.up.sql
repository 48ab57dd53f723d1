BEGIN;
ALTER TYPE vehicle_kind ADD VALUE 'tram';
COMMIT;

BEGIN;
UPDATE vehicles SET kind = 'tram' WHERE seats > 100;
COMMIT;
