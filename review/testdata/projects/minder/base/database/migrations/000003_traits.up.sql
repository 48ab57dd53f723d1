CREATE TYPE trait AS ENUM ('electric', 'vintage', 'rental');

ALTER TABLE vehicles
    -- old rows have none
    ADD COLUMN traits trait[] NOT NULL DEFAULT '{}';
