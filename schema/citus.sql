-- The table in which Citus lists the tables that it manages, in pg_catalog where the extension is installed: those
-- columns of it that versions 6 to 13 have in common. It is no part of this library's schema and never applied:
-- sqlc compiles the query that reads it, and the tests put it where Citus has it not.
CREATE TABLE pg_dist_partition (
    logicalrelid regclass NOT NULL,
    partmethod "char" NOT NULL,
    partkey text,
    colocationid integer NOT NULL DEFAULT 0,
    repmodel "char" NOT NULL DEFAULT 'c'
);

COMMENT ON TABLE pg_dist_partition IS
    'Not of this library: what Citus manages, a row for each table.';
