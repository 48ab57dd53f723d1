-- Which versions of this library may work on a database. In a rolling deploy the database is migrated first. Processes
-- of the version before continue beside the new ones as long as this function allows it.
--
-- From this file on each migration names that version in a line like the last one of this comment: the newest migration
-- that the version knew. A migration that older versions can live with (a table, an index, a nullable column) repeats
-- the line of the file before it. A migration that they cannot live with names itself. Its first object replaces the
-- function below, and its down part restores the function of the file before.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE FUNCTION ffx_usable_from() RETURNS text
LANGUAGE sql
STABLE
PARALLEL SAFE
AS $$
    SELECT '20261125000001';
$$;

COMMENT ON FUNCTION ffx_usable_from() IS
    'The oldest version of this library that may work on this database, as the newest migration that that version knows.';

-- A migrator with a ledger of its own may not have made it.
DO $$
BEGIN
    IF to_regclass('ffx_schema_migrations') IS NOT NULL THEN
        COMMENT ON TABLE ffx_schema_migrations IS
            'Ledger of this library''s migrations. In a database that FlowFabric made it also has the steps of the conversion, and a row adopted once that is done.';
        COMMENT ON COLUMN ffx_schema_migrations.version IS
            'A migration that was applied, by the 14 digits of its file''s name.';
    END IF;
END;
$$;

-- migrate:down

DO $$
BEGIN
    IF to_regclass('ffx_schema_migrations') IS NOT NULL THEN
        COMMENT ON COLUMN ffx_schema_migrations.version IS NULL;
        COMMENT ON TABLE ffx_schema_migrations IS NULL;
    END IF;
END;
$$;

DROP FUNCTION ffx_usable_from();
