-- The oldest version of this library that may work on a database. In a rolling deploy the database is migrated
-- first, and processes of the version before run on beside the new ones, as long as this lets them.
--
-- From this file on each migration says in a line like the next which version that is once it is applied: the
-- newest migration that the version knew. A migration that older versions can live with (a table, an index, a
-- nullable column) repeats what the file before it says. One that they cannot names itself, and its first object
-- replaces the function below, so that they refuse the database before anything else of it has changed; its
-- down part brings the function of the file before back.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_usable_from
-- The oldest version of this library that may work on this database.
CREATE FUNCTION ffx_usable_from() RETURNS text
LANGUAGE sql
STABLE
PARALLEL SAFE
AS $$
    SELECT '20261101000016';
$$;

-- migrate:down

DROP FUNCTION ffx_usable_from();
