BEGIN;

CREATE TABLE inspections (
    id UUID NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    vehicle_id UUID NOT NULL REFERENCES vehicles (id) ON DELETE CASCADE,
    verdict verdict NOT NULL DEFAULT 'pending',
    details JSONB,
    made_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT NOW()
);

CREATE INDEX inspections_vehicle_idx ON inspections (vehicle_id);

COMMIT;
