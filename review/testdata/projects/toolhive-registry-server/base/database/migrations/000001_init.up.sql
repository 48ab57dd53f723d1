CREATE TYPE source_type AS ENUM ('MANAGED', 'FILE', 'REMOTE');
CREATE TYPE sync_status AS ENUM ('IN_PROGRESS', 'COMPLETED', 'FAILED');
CREATE DOMAIN percent AS INTEGER CHECK (VALUE BETWEEN 0 AND 100);

CREATE TABLE kennel (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    name TEXT NOT NULL UNIQUE,
    kind source_type NOT NULL DEFAULT 'MANAGED',
    created_at TIMESTAMP WITH TIME ZONE DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE kennel_sync (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    kennel_id UUID NOT NULL REFERENCES kennel (id) ON DELETE CASCADE,
    status sync_status NOT NULL,
    done percent NOT NULL DEFAULT 0,
    every INTERVAL,
    started_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE
);

CREATE INDEX kennel_sync_started_at_idx ON kennel_sync (started_at);
