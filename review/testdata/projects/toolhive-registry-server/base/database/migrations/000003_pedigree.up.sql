CREATE TABLE pedigree (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    kennel_id UUID NOT NULL REFERENCES kennel (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    traits TEXT[],
    claims JSONB,
    UNIQUE (kennel_id, name)
);

CREATE INDEX pedigree_claims_idx ON pedigree USING gin (claims);
