-- name: GetSchemaState :one
-- GetSchemaState tells whether the schema's tables are there, whether it declares who may work on them, whether
-- the server takes writes, whether it has Citus, and how the database encodes text.
--
-- Used by: engine.Prepare.
-- Locks: none.
SELECT
    (to_regclass('ffx_schema_migrations') IS NOT NULL)::boolean AS migrated,
    (to_regclass('_sqlx_migrations') IS NOT NULL)::boolean AS reference_made,
    (to_regprocedure('ffx_usable_from()') IS NOT NULL)::boolean AS declared,
    (pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on')::boolean AS read_only,
    (to_regclass('pg_dist_partition') IS NOT NULL)::boolean AS has_citus,
    current_setting('server_encoding')::text AS encoding;

-- name: GetSchemaVersion :one
-- GetSchemaVersion returns the newest applied migration, the empty string when there is none. The ledger of
-- an adopted database also holds the mark "adopted" and the parts of migrations, as version/part.
-- ffx_schema_migrations must be known to exist.
--
-- Used by: engine.Prepare.
-- Locks: none.
SELECT coalesce(max(m.version), '')::text AS version
FROM ffx_schema_migrations AS m
WHERE m.version ~ '^[0-9]+$';

-- name: GetUsableFrom :one
-- GetUsableFrom returns the oldest version of this library that may work on the schema.
-- ffx_usable_from must be known to exist.
--
-- Used by: engine.Prepare.
-- Locks: none.
SELECT coalesce(ffx_usable_from(), '')::text AS version;

-- name: ListCitusTables :many
-- ListCitusTables returns tables of this library that Citus manages, distributed or not; no row: all is well.
-- Tables of other names are passed over, and those that the search_path does not lead to, which are written
-- with their schema.
-- pg_dist_partition must be known to exist.
--
-- Used by: engine.Prepare.
-- Locks: none.
SELECT p.logicalrelid::text AS name
FROM pg_dist_partition AS p
WHERE p.logicalrelid::text ~ '^ffx?_[a-z_]+$'
ORDER BY name
LIMIT @page_size;
