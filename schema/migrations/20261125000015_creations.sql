-- Idempotency keys of creations, and executions that FlowFabric creates.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_create_dedup (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    idempotency_key text NOT NULL,
    execution_id uuid NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, namespace, idempotency_key)
);

COMMENT ON TABLE ffx_create_dedup IS
    'Idempotency keys of creations, while their windows last: a repeated creation finds the execution of the first.';
COMMENT ON COLUMN ffx_create_dedup.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ffx_create_dedup.namespace IS
    'Namespace of the execution.';
COMMENT ON COLUMN ffx_create_dedup.idempotency_key IS
    'Lane, or flow of a member, kind and the caller''s key in one text that begins with U+0001. Rows of older versions hold the caller''s key alone, which then holds whatever the lane, flow and kind.';
COMMENT ON COLUMN ffx_create_dedup.execution_id IS
    'The execution that was created with it, the uuid half of its id.';
COMMENT ON COLUMN ffx_create_dedup.expires_at_ms IS
    'Milliseconds since the Unix epoch: when the key may be used anew.';

CREATE INDEX ffx_create_dedup_expiry_idx ON ffx_create_dedup (expires_at_ms);

-- A job brings what FlowFabric creates into this library's form as soon as it is there. A creation of this library
-- writes 0 to ffx_retry_count, so none of its rows is ever in the index, nor does it fire the trigger.
CREATE INDEX ffx_ff_exec_core_foreign_idx ON ff_exec_core (created_at_ms, partition_key, execution_id)
WHERE ffx_retry_count IS NULL;

-- For each row, because the condition of a statement trigger cannot see the rows. Equal notifications of a transaction
-- are one.
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

DROP TABLE ffx_create_dedup;
