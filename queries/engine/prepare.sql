-- name: GetSchemaState :one
-- GetSchemaState returns whether the schema's tables exist, whether the schema declares which versions may work there,
-- whether the tables are FlowFabric's partitioned ones, whether the server takes writes, whether the server has Citus,
-- and how the database encodes text. denied_schema is a schema of the search_path with the tables the role may not use,
-- "" if there is none.
--
-- Used by: engine.Prepare, engine.Roles.
-- Locks: none.
SELECT
    (to_regclass('ffx_schema_migrations') IS NOT NULL)::boolean AS migrated,
    (to_regclass('_sqlx_migrations') IS NOT NULL)::boolean AS reference_made,
    (to_regprocedure('ffx_usable_from()') IS NOT NULL)::boolean AS declared,
    EXISTS (
        SELECT
        FROM pg_catalog.pg_class AS c
        WHERE
            c.oid = to_regclass('ff_exec_core')
            AND c.relkind = 'p'
    )::boolean AS partitioned,
    (pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on')::boolean AS read_only,
    (to_regclass('pg_dist_partition') IS NOT NULL)::boolean AS has_citus,
    current_setting('server_encoding')::text AS encoding,
    coalesce(
        (
            SELECT quote_ident(n.nspname::text)
            FROM pg_catalog.pg_class AS c
            JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
            WHERE
                c.relname = 'ffx_schema_migrations'
                AND NOT has_schema_privilege(n.oid, 'USAGE')
                AND n.nspname::text IN (
                    SELECT btrim(btrim(p.name), '"')
                    FROM unnest(string_to_array(current_setting('search_path'), ',')) AS p (name)
                )
            ORDER BY n.nspname
            LIMIT 1
        ),
        ''
    )::text AS denied_schema,
    quote_ident(current_user)::text AS role_name;

-- name: ListMissingRights :many
-- ListMissingRights returns which of the given rights the current role lacks, and the role's name as GRANT takes names.
-- Missing objects are skipped. No row: the role has all.
--
-- Used by: engine.Prepare, engine.Roles.
-- Locks: none.
SELECT
    r.kind::text AS kind,
    r.object::text AS object,
    r.privilege::text AS privilege,
    quote_ident(current_user)::text AS role_name
FROM (
    SELECT
        unnest(@kinds::text[]) AS kind,
        unnest(@objects::text[]) AS object,
        unnest(@privileges::text[]) AS privilege
) AS r
WHERE
    CASE r.kind
        WHEN 'TABLE' THEN has_table_privilege(to_regclass(r.object)::oid, r.privilege)
        WHEN 'SEQUENCE' THEN has_sequence_privilege(to_regclass(r.object)::oid, r.privilege)
        ELSE has_function_privilege(to_regprocedure(r.object)::oid, r.privilege)
    END IS FALSE
ORDER BY
    r.kind,
    r.object,
    r.privilege
LIMIT cardinality(@objects::text[]);

-- name: GetSchemaVersion :one
-- GetSchemaVersion returns the newest applied migration, empty if there is none, and whether a conversion of
-- FlowFabric's tables has begun and is not complete. The steps of a conversion are in the ledger too, the last one as
-- "adopted". The caller has checked for ffx_schema_migrations.
--
-- Used by: engine.Prepare.
-- Locks: none.
SELECT
    coalesce(max(m.version) FILTER (WHERE m.version ~ '^[0-9]+$'), '')::text AS version,
    coalesce(bool_or(m.version = 'adopt/check') AND NOT bool_or(m.version = 'adopted'), false)::boolean AS converting
FROM ffx_schema_migrations AS m;

-- name: GetUsableFrom :one
-- GetUsableFrom returns the oldest version of the library allowed to work on the schema. The caller has checked for
-- ffx_usable_from.
--
-- Used by: engine.Prepare.
-- Locks: none.
SELECT coalesce(ffx_usable_from(), '')::text AS version;

-- name: ListFlowPartitions :many
-- ListFlowPartitions returns a sample of flows with the partitions of their rows. The highest partitions come first,
-- since low ones fit many counts.
--
-- Used by: engine.Prepare.
-- Locks: none. Spans partitions.
SELECT
    f.partition_key,
    f.flow_id
FROM ff_flow_core AS f
ORDER BY
    f.partition_key DESC,
    f.flow_id DESC
LIMIT @sample::integer;

-- name: ListCitusTables :many
-- ListCitusTables returns tables of the library managed by Citus, distributed or not. No row: there are none. Tables of
-- other names are skipped. Tables the search_path does not reach are returned with their schema. The caller has checked
-- for pg_dist_partition.
--
-- Used by: engine.Prepare.
-- Locks: none.
SELECT p.logicalrelid::text AS name
FROM pg_dist_partition AS p
WHERE p.logicalrelid::text ~ '^ffx?_[a-z_]+$'
ORDER BY name
LIMIT @page_size;

-- name: ListShadowing :many
-- ListShadowing returns functions, tables and views with a name of the library, in a schema before the ledger's in the
-- search_path: statements would use the wrong object. Temporary ones are included. No row: all names resolve to one
-- schema. The caller has checked for ffx_schema_migrations.
--
-- Used by: engine.Prepare.
-- Locks: none.
WITH path AS MATERIALIZED (
    -- The schemas of the search_path, with their places.
    SELECT
        n.oid AS schema_id,
        n.nspname AS schema_name,
        array_position(current_schemas(true), n.nspname) AS place
    FROM pg_catalog.pg_namespace AS n
    WHERE
        n.nspname = ANY (current_schemas(true))
        AND n.nspname <> 'pg_catalog'
),
home AS MATERIALIZED (
    -- The one with the ledger.
    SELECT
        p.schema_id,
        p.schema_name,
        p.place
    FROM pg_catalog.pg_class AS c
    JOIN path AS p ON p.schema_id = c.relnamespace
    WHERE c.oid = to_regclass('ffx_schema_migrations')
),
shadowing AS (
    -- The schemas before the ledger's.
    SELECT DISTINCT
        'function ' || f.oid::regprocedure::text AS object,
        p.schema_name,
        h.schema_name AS home_name
    FROM home AS h
    JOIN path AS p ON p.place < h.place
    JOIN pg_catalog.pg_proc AS f ON f.pronamespace = p.schema_id
    JOIN pg_catalog.pg_proc AS o ON o.pronamespace = h.schema_id AND o.proname = f.proname
    WHERE f.proname ~ '^ffx?_'
    UNION ALL
    SELECT
        CASE c.relkind WHEN 'v' THEN 'view ' ELSE 'table ' END || c.relname::text,
        p.schema_name,
        h.schema_name
    FROM home AS h
    JOIN path AS p ON p.place < h.place
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = p.schema_id
    JOIN pg_catalog.pg_class AS o ON o.relnamespace = h.schema_id AND o.relname = c.relname
    WHERE
        c.relname ~ '^ffx?_'
        AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
)
SELECT
    s.object::text AS object,
    s.schema_name::text AS schema_name,
    s.home_name::text AS home_name
FROM shadowing AS s
ORDER BY s.object
LIMIT @page_size;
