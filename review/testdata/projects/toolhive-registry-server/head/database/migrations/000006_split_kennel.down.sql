DROP TABLE kennel;

ALTER TABLE pedigree DROP CONSTRAINT pedigree_source_id_fkey;
ALTER TABLE pedigree RENAME COLUMN source_id TO kennel_id;

ALTER TABLE source RENAME CONSTRAINT source_pkey TO kennel_pkey;
ALTER TABLE source RENAME TO kennel;

ALTER TABLE pedigree ADD CONSTRAINT pedigree_kennel_id_fkey
    FOREIGN KEY (kennel_id) REFERENCES kennel (id) ON DELETE CASCADE;
