-- Databases that are worked on together with FlowFabric. schema.Share is the switch: it creates the triggers that serve
-- only FlowFabric's writes, which call the functions of this file, and schema.Unshare drops them. Nothing here costs a
-- database anything that this library has for itself. The guard ffx_replayed_elsewhere, in completions, stays whatever the
-- switch says: replays that FlowFabric made outlive it.
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
    SELECT count(*) = 4
    FROM pg_catalog.pg_trigger AS t
    WHERE
        t.tgrelid = to_regclass('ff_exec_core')
        AND t.tgname IN (
            'ffx_ff_exec_core_foreign_trg', 'ffx_ff_exec_core_undone_trg', 'ffx_ff_exec_core_document_insert_trg',
            'ffx_ff_exec_core_document_update_trg'
        );
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

-- These columns were generated for the sake of FlowFabric's writes, which cost each write of this library as well. The
-- values stay.
ALTER TABLE ff_exec_core
    ALTER COLUMN ffx_namespace DROP EXPRESSION,
    ALTER COLUMN ffx_instance_tag DROP EXPRESSION;

COMMENT ON COLUMN ff_exec_core.ffx_namespace IS
    'raw_fields.namespace, its first 1024 bytes; events carry it. A trigger of shared databases fills it in for FlowFabric.';
COMMENT ON COLUMN ff_exec_core.ffx_instance_tag IS
    'The tag cairn.instance_id, its first 1024 bytes; events carry it. A trigger of shared databases fills it in for FlowFabric.';

-- Some indexes of events hold both values, and an entry above some 2.7 kB would fail every write. This library refuses
-- longer values, but FlowFabric may store them. The document keeps the whole value.
CREATE FUNCTION ffx_fill_from_document() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NEW.ffx_namespace := NEW.raw_fields ->> 'namespace';
    IF octet_length(NEW.ffx_namespace) > 1024 THEN
        NEW.ffx_namespace := ffx_first_kilobyte(NEW.ffx_namespace);
    END IF;
    NEW.ffx_instance_tag := NEW.raw_fields -> 'tags' ->> 'cairn.instance_id';
    IF octet_length(NEW.ffx_instance_tag) > 1024 THEN
        NEW.ffx_instance_tag := ffx_first_kilobyte(NEW.ffx_instance_tag);
    END IF;
    RETURN NEW;
END;
$$;

COMMENT ON FUNCTION ffx_fill_from_document() IS
    'Trigger: fills in the namespace and the tag cairn.instance_id of an execution from its document, which another program writes.';

-- migrate:down

DROP FUNCTION ffx_shared();

DROP TRIGGER IF EXISTS ffx_ff_exec_core_document_update_trg ON ff_exec_core;

DROP TRIGGER IF EXISTS ffx_ff_exec_core_document_insert_trg ON ff_exec_core;

DROP FUNCTION ffx_fill_from_document();

ALTER TABLE ff_exec_core
    DROP COLUMN ffx_namespace,
    DROP COLUMN ffx_instance_tag,
    ADD COLUMN ffx_namespace text GENERATED ALWAYS AS (
        CASE
            WHEN octet_length(raw_fields ->> 'namespace') > 1024 THEN ffx_first_kilobyte(raw_fields ->> 'namespace')
            ELSE raw_fields ->> 'namespace'
        END
    ) STORED,
    ADD COLUMN ffx_instance_tag text GENERATED ALWAYS AS (
        CASE
            WHEN octet_length(raw_fields -> 'tags' ->> 'cairn.instance_id') > 1024
                THEN ffx_first_kilobyte(raw_fields -> 'tags' ->> 'cairn.instance_id')
            ELSE raw_fields -> 'tags' ->> 'cairn.instance_id'
        END
    ) STORED;

COMMENT ON COLUMN ff_exec_core.ffx_namespace IS
    'Generated from raw_fields.namespace, its first 1024 bytes; events carry it.';
COMMENT ON COLUMN ff_exec_core.ffx_instance_tag IS
    'Generated from the tag cairn.instance_id, its first 1024 bytes; events carry it.';

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
