-- What an insert into ff_exec_core costs beside its rows.
--
-- The function that cuts a long namespace or tag is called for few, but each statement that inserts had its body parsed, to
-- see whether it could stand in place of the call. In plpgsql it cannot, and nobody looks.
--
-- A creation that writes the queue entries of its executions itself, in the same statement, leaves the trigger out that would
-- write them. It says so by the setting ffx.own_entries, which holds the id of the transaction from the statement's beginning
-- to its end, and is local to the transaction besides: a rollback takes it back. Whoever does not know the setting calls the
-- trigger as before, and so does whoever has set it, by hand or for a session, to anything else than that id.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_first_kilobyte that is not parsed
CREATE OR REPLACE FUNCTION ffx_first_kilobyte(value text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN (
        SELECT left(value, max(n))
        FROM generate_series(256, 1024) AS n
        WHERE octet_length(left(value, n)) <= 1024
    );
END;
$$;

-- object: ffx_ff_exec_core_fill_ready_trg without own entries
CREATE OR REPLACE TRIGGER ffx_ff_exec_core_fill_ready_trg
AFTER INSERT ON ff_exec_core
REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT
WHEN (current_setting('ffx.own_entries', true) IS DISTINCT FROM pg_current_xact_id_if_assigned()::text)
EXECUTE FUNCTION ffx_fill_ready();

COMMENT ON TRIGGER ffx_ff_exec_core_fill_ready_trg ON ff_exec_core IS
    'Puts inserted executions that are claimable into the queue, ffx_ready, a statement at a time. A creation by this library that writes the entries itself, and says so by the id of the transaction in the setting ffx.own_entries, does not fire it.';

-- migrate:down

CREATE OR REPLACE TRIGGER ffx_ff_exec_core_fill_ready_trg
AFTER INSERT ON ff_exec_core
REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_fill_ready();

COMMENT ON TRIGGER ffx_ff_exec_core_fill_ready_trg ON ff_exec_core IS
    'Puts inserted executions that are claimable into the queue, ffx_ready, a statement at a time.';

CREATE OR REPLACE FUNCTION ffx_first_kilobyte(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT left(value, max(n))
    FROM generate_series(256, 1024) AS n
    WHERE octet_length(left(value, n)) <= 1024;
$$;
