-- What FlowFabric creates is brought into this library's form as soon as it is there. Creation here writes 0 to
-- ffx_retry_count, so no row of this library is ever in the index, nor does its own creation fire the trigger.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_ff_exec_core_foreign_idx
CREATE INDEX ffx_ff_exec_core_foreign_idx ON ff_exec_core (created_at_ms, partition_key, execution_id)
WHERE ffx_retry_count IS NULL;

-- object: ffx_ff_exec_core_foreign_trg
-- For each row, as only then the condition stands before the call: of a statement it could not see the rows. Equal
-- notifications of a transaction are one.
CREATE TRIGGER ffx_ff_exec_core_foreign_trg
AFTER INSERT ON ff_exec_core
FOR EACH ROW
WHEN (NEW.ffx_retry_count IS NULL)
EXECUTE FUNCTION ffx_notify_channel('ffx_foreign');

COMMENT ON TRIGGER ffx_ff_exec_core_foreign_trg ON ff_exec_core IS
    'Notifies channel ffx_foreign of executions that another program creates, with an empty payload; creation by this library does not fire it.';

-- migrate:down

DROP TRIGGER ffx_ff_exec_core_foreign_trg ON ff_exec_core;
DROP INDEX ffx_ff_exec_core_foreign_idx;
