-- name: ListTableStatistics :many
-- ListTableStatistics returns the tables of the current schema with the most dead rows, by the counters of the server, which
-- need no scan. last_vacuum_ms is 0 for a table that was never vacuumed.
--
-- Used by: operator.Database.
-- Locks: none. Spans partitions.
SELECT
    t.relname::text AS table_name,
    coalesce(t.n_live_tup, 0)::bigint AS live,
    coalesce(t.n_dead_tup, 0)::bigint AS dead,
    coalesce(extract(epoch FROM greatest(t.last_vacuum, t.last_autovacuum)) * 1000, 0)::bigint AS last_vacuum_ms
FROM pg_catalog.pg_stat_user_tables AS t
WHERE t.schemaname = current_schema()
ORDER BY
    t.n_dead_tup DESC,
    t.relname
LIMIT 20;

-- name: ListOldSnapshots :many
-- ListOldSnapshots returns the sessions of the database with the oldest snapshots, which keep dead rows from being removed. The
-- server shows sessions of other roles without the details to a role without pg_read_all_stats: they are left out.
--
-- Used by: operator.Database.
-- Locks: none.
SELECT
    a.pid::integer AS pid,
    coalesce(a.application_name, '')::text AS application_name,
    coalesce(a.usename, '')::text AS user_name,
    coalesce(a.state, '')::text AS session_state,
    coalesce(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000, 0)::bigint AS age_ms
FROM pg_catalog.pg_stat_activity AS a
WHERE
    a.datname = current_database()
    AND a.backend_xmin IS NOT NULL
    AND a.xact_start IS NOT NULL
    AND a.pid <> pg_backend_pid()
ORDER BY
    a.xact_start,
    a.pid
LIMIT 5;
