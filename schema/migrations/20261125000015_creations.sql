-- Idempotency keys of creations.
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

-- migrate:down

DROP TABLE ffx_create_dedup;
