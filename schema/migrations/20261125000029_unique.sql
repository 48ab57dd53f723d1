-- Unique work: while an execution waits, until it has ended, unless it fails, or as long as it is kept, no second one
-- with its key is created. A key stays when its holder leaves these states, and the next creation takes it over: so
-- nothing that starts or ends an execution writes here.
--
-- usable-from: 20261125000001

-- migrate:up

ALTER TABLE ff_exec_core
    ADD COLUMN ffx_unique_key uuid;

COMMENT ON COLUMN ff_exec_core.ffx_unique_key IS
    'Key of unique work, as in ffx_unique; NULL: not unique. Never changed. raw_fields has for how long: ffx_unique, with the values of ffx_unique.lasts.';

-- The key alone is the primary key: with a partition before it each new key costs the index twice as much.
CREATE TABLE ffx_unique (
    key uuid PRIMARY KEY,
    lasts text NOT NULL,
    taken bigint NOT NULL,
    holder_partition_key smallint NOT NULL,
    execution_id uuid NOT NULL
)
WITH (fillfactor = 90);

COMMENT ON TABLE ffx_unique IS
    'Keys of unique work with the last execution that took each. It stays until that execution is deleted, and is in force only while the execution is in the states of lasts.';
COMMENT ON COLUMN ffx_unique.key IS
    'First 16 bytes of SHA-256 over namespace, kind and the other parts that make the work unique.';
COMMENT ON COLUMN ffx_unique.lasts IS
    'Until when the key is in force: waiting (for a first claim), unfinished (until the end), unfailed (until any end but success, or until retention deletes the execution), kept (until retention deletes the execution).';
COMMENT ON COLUMN ffx_unique.taken IS
    'Counter, raised whenever the holder changes, or runs again after its end.';
COMMENT ON COLUMN ffx_unique.holder_partition_key IS
    'Logical shard of the execution that took the key last, 0 to 255.';
COMMENT ON COLUMN ffx_unique.execution_id IS
    'The execution that took the key last, the uuid half of its id.';

-- migrate:down

DROP TABLE ffx_unique;

ALTER TABLE ff_exec_core
    DROP COLUMN ffx_unique_key;
