CREATE TABLE temp_pedigree (
    id UUID PRIMARY KEY,
    source_id UUID NOT NULL,
    name TEXT NOT NULL,
    traits TEXT[]
);
