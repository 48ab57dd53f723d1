CREATE TYPE vehicle_kind AS ENUM ('car', 'van', 'truck');
CREATE TYPE verdict AS ENUM ('pending', 'passed', 'failed', 'error');

CREATE TABLE garages (
    id UUID NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    name TEXT NOT NULL,
    is_chain BOOLEAN NOT NULL DEFAULT FALSE,
    metadata JSONB NOT NULL DEFAULT '{}'::jsonb,
    parent_id UUID REFERENCES garages (id) ON DELETE CASCADE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT NOW()
);

CREATE TABLE mechanics (
    id SERIAL PRIMARY KEY,
    subject TEXT NOT NULL UNIQUE,
    created_at TIMESTAMP NOT NULL DEFAULT NOW()
);

CREATE TABLE vehicles (
    id UUID NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    garage_id UUID NOT NULL REFERENCES garages (id) ON DELETE CASCADE,
    kind vehicle_kind NOT NULL,
    plate TEXT NOT NULL,
    seats INTEGER NOT NULL DEFAULT 5,
    UNIQUE (garage_id, plate)
);
