-- The kennel becomes the source; kennels are groups of sources.
ALTER TABLE kennel RENAME TO source;
ALTER TABLE source RENAME CONSTRAINT kennel_pkey TO source_pkey;

ALTER TABLE pedigree RENAME COLUMN kennel_id TO source_id;
ALTER TABLE pedigree DROP CONSTRAINT pedigree_kennel_id_fkey;
ALTER TABLE pedigree ADD CONSTRAINT pedigree_source_id_fkey
    FOREIGN KEY (source_id) REFERENCES source (id) ON DELETE CASCADE;

CREATE TABLE kennel (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    name TEXT NOT NULL UNIQUE
);

INSERT INTO kennel (name) SELECT name FROM source;
