-- Business keys: an execution or a flow is found by a name and a value of the caller, as order 4711, and no second one
-- gets the same key as long as the first is kept. The key also stands in the document of its holder, for reads and for
-- retention, so no index leads from a holder to its key, and work without a key costs nothing.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_business_key (
    partition_key smallint NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    holder_partition_key smallint NOT NULL,
    execution_id uuid,
    flow_id uuid,
    PRIMARY KEY (partition_key, name, value),
    CONSTRAINT ffx_business_key_holder_check CHECK (num_nonnulls(execution_id, flow_id) = 1)
);

COMMENT ON TABLE ffx_business_key IS
    'Business keys of executions and flows. A row is deleted with its holder, which frees the key.';
COMMENT ON COLUMN ffx_business_key.partition_key IS
    'Logical shard of the key, 0 to 255: ffx_key_partition of its name and value.';
COMMENT ON COLUMN ffx_business_key.name IS
    'Name of the key, 1 to 64 bytes.';
COMMENT ON COLUMN ffx_business_key.value IS
    'Value of the key, 1 to 512 bytes.';
COMMENT ON COLUMN ffx_business_key.holder_partition_key IS
    'Logical shard of the execution or flow that has the key, 0 to 255.';
COMMENT ON COLUMN ffx_business_key.execution_id IS
    'The execution that has the key, the uuid half of its id; NULL: a flow has it.';
COMMENT ON COLUMN ffx_business_key.flow_id IS
    'The flow that has the key; NULL: an execution has it.';

-- The engine computes the same in Go.
CREATE FUNCTION ffx_key_partition(name text, value text) RETURNS smallint
LANGUAGE sql
STABLE
PARALLEL SAFE
AS $$
    SELECT get_byte(sha256(convert_to(name, 'UTF8') || '\x00'::bytea || convert_to(value, 'UTF8')), 0)::smallint;
$$;

COMMENT ON FUNCTION ffx_key_partition(name text, value text) IS
    'Logical shard of a business key, 0 to 255: the first byte of SHA-256 over the name, a zero byte and the value, in UTF-8.';

CREATE FUNCTION ffx_signal_to(
    key_name text, key_value text, name text,
    payload jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL, source text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    execution text;
BEGIN
    SELECT '{fp:' || k.holder_partition_key || '}:' || k.execution_id
    INTO execution
    FROM ffx_business_key AS k
    WHERE
        k.partition_key = ffx_key_partition(key_name, key_value)
        AND k.name = key_name
        AND k.value = key_value;
    IF execution IS NULL THEN
        RAISE no_data_found USING MESSAGE = 'ffx_signal_to: no execution has the business key';
    END IF;
    RETURN ffx_signal(execution, ffx_signal_to.name, payload, idempotency_key, source);
END;
$$;

COMMENT ON FUNCTION ffx_signal_to(
    key_name text, key_value text, name text, payload jsonb, idempotency_key text, source text
) IS 'Sends a signal to the execution that has a business key, in the caller''s transaction: ffx_signal.';

-- migrate:down

DROP FUNCTION ffx_signal_to(text, text, text, jsonb, text, text);

DROP FUNCTION ffx_key_partition(text, text);

DROP TABLE ffx_business_key;
