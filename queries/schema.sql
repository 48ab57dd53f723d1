-- name: GetSchemaState :one
-- GetSchemaState tells whether the schema's tables are there, which migration was applied last, and
-- whether the server takes writes.
--
-- Used by: engine.Prepare.
-- Locks: none.
SELECT
    (to_regclass('ffx_schema_migrations') IS NOT NULL)::boolean AS migrated,
    (to_regclass('_sqlx_migrations') IS NOT NULL)::boolean AS reference_made,
    (pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on')::boolean AS read_only;

-- name: GetSchemaVersion :one
-- GetSchemaVersion returns the newest applied migration, the empty string when there is none. The ledger of
-- an adopted database also holds the mark "adopted" and the parts of migrations, as version/part.
--
-- Used by: engine.Prepare, once ffx_schema_migrations is known to exist.
-- Locks: none.
SELECT coalesce(max(m.version), '')::text AS version
FROM ffx_schema_migrations AS m
WHERE m.version ~ '^[0-9]+$';
