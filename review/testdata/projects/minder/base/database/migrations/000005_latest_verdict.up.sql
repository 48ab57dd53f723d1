BEGIN;

CREATE TABLE latest_verdicts (
    vehicle_id UUID NOT NULL PRIMARY KEY REFERENCES vehicles (id) ON DELETE CASCADE,
    verdict verdict NOT NULL
);

CREATE OR REPLACE FUNCTION keep_latest_verdict() RETURNS TRIGGER AS $$
BEGIN
    INSERT INTO latest_verdicts (vehicle_id, verdict) VALUES (NEW.vehicle_id, NEW.verdict)
    ON CONFLICT (vehicle_id) DO UPDATE SET verdict = NEW.verdict;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

CREATE TRIGGER keep_latest_verdict
    AFTER INSERT OR UPDATE ON inspections
    FOR EACH ROW EXECUTE FUNCTION keep_latest_verdict();

COMMIT;
