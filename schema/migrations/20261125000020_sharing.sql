-- Databases that are worked on together with FlowFabric. schema.Share is the switch: it creates the triggers that serve
-- only FlowFabric's writes, which call the functions of this file, and schema.Unshare drops them. Nothing here costs a
-- database anything that this library has for itself.
--
-- usable-from: 20261125000020

-- migrate:up

CREATE OR REPLACE FUNCTION ffx_usable_from() RETURNS text
LANGUAGE sql
STABLE
PARALLEL SAFE
AS $$
    SELECT '20261125000020';
$$;

-- schema.Share creates it.
DROP TRIGGER ffx_ff_exec_core_foreign_trg ON ff_exec_core;

CREATE FUNCTION ffx_shared() RETURNS boolean
LANGUAGE sql
STABLE
PARALLEL SAFE
AS $$
    SELECT count(*) = 2
    FROM pg_catalog.pg_trigger AS t
    WHERE
        t.tgrelid = to_regclass('ff_exec_core')
        AND t.tgname IN ('ffx_ff_exec_core_foreign_trg', 'ffx_ff_exec_core_undone_trg');
$$;

COMMENT ON FUNCTION ffx_shared() IS
    'Whether FlowFabric may work on this database too: the triggers of `ff migrate share` exist.';

-- An end negates the deadline, so that no job looks at it again. A replay by FlowFabric leaves it negative, and may move
-- the column that it knows. The deadline is unknown then, as that of an execution that FlowFabric created.
CREATE FUNCTION ffx_forget_undone_deadline() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.ffx_execution_deadline_ms < 0 THEN
        NEW.ffx_execution_deadline_ms := NULL;
    END IF;
    RETURN NEW;
END;
$$;

COMMENT ON FUNCTION ffx_forget_undone_deadline() IS
    'Trigger: sets the deadline of an execution to NULL if it is negative, after another program has undone its end.';

-- migrate:down

DROP FUNCTION ffx_shared();

DROP TRIGGER IF EXISTS ffx_ff_exec_core_undone_trg ON ff_exec_core;

DROP TRIGGER IF EXISTS ffx_ff_exec_core_foreign_trg ON ff_exec_core;

DROP FUNCTION ffx_forget_undone_deadline();

CREATE TRIGGER ffx_ff_exec_core_foreign_trg
AFTER INSERT ON ff_exec_core
FOR EACH ROW
WHEN (NEW.ffx_retry_count IS NULL)
EXECUTE FUNCTION ffx_notify_channel('ffx_foreign');

COMMENT ON TRIGGER ffx_ff_exec_core_foreign_trg ON ff_exec_core IS
    'Notifies channel ffx_foreign of executions that another program creates, with an empty payload; creation by this library does not fire it.';

CREATE OR REPLACE FUNCTION ffx_usable_from() RETURNS text
LANGUAGE sql
STABLE
PARALLEL SAFE
AS $$
    SELECT '20261125000001';
$$;
