CREATE TABLE litter (
    pedigree_id UUID NOT NULL REFERENCES pedigree (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    born DATE NOT NULL,
    PRIMARY KEY (pedigree_id, position)
);
