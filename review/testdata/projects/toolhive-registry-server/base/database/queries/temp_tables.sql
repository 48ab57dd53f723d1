-- name: CreateTempPedigree :exec
CREATE TEMP TABLE temp_pedigree ON COMMIT DROP AS
SELECT id, kennel_id AS source_id, name, traits FROM pedigree WITH NO DATA;

-- name: DropTempPedigree :exec
DROP TABLE IF EXISTS temp_pedigree;

-- name: FillTempPedigree :copyfrom
INSERT INTO temp_pedigree (id, source_id, name, traits) VALUES ($1, $2, $3, $4);

-- name: UpsertFromTempPedigree :many
INSERT INTO pedigree (id, kennel_id, name, traits)
SELECT id, source_id, name, traits FROM temp_pedigree
ON CONFLICT (kennel_id, name) DO UPDATE SET traits = EXCLUDED.traits
RETURNING id, name;
