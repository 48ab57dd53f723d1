-- Creation from SQL, for triggers and for other languages: the same rows as CreateExecution writes for the same fields.
-- Policies are not among them, since they are checked in Go.
--
-- usable-from: 20261125000001

-- migrate:up

-- Package id computes the same. The number of partitions is that of the programs, 256 unless they configure another one.
CREATE FUNCTION ffx_lane_partition(lane text, partitions integer) RETURNS smallint
LANGUAGE plpgsql
IMMUTABLE
STRICT
PARALLEL SAFE
AS $$
DECLARE
    name bytea := convert_to(lane, 'UTF8');
    crc integer := 0;
    x integer;
BEGIN
    FOR i IN 0..octet_length(name) - 1 LOOP
        x := (crc >> 8) # get_byte(name, i);
        x := x # (x >> 4);
        crc := ((crc << 8) # (x << 12) # (x << 5) # x) & 65535;
    END LOOP;
    RETURN (crc % partitions)::smallint;
END;
$$;

COMMENT ON FUNCTION ffx_lane_partition(lane text, partitions integer) IS
    'Logical shard of executions of a lane outside flows: CRC-16/XMODEM of its name in UTF-8, modulo the number of partitions.';

-- Its first 60 bits of time ascend by microseconds, in the form of the ids that package id makes. uuidv7() exists from
-- Postgres 18 on.
CREATE FUNCTION ffx_new_id() RETURNS uuid
LANGUAGE sql
VOLATILE
PARALLEL SAFE
AS $$
    SELECT encode(
        int8send(((t.us / 1000) << 16) | 28672 | (t.us % 1000 * 1000 >> 8)) || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex'
    )::uuid
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS t;
$$;

COMMENT ON FUNCTION ffx_new_id() IS 'A new UUIDv7, whose time is the database''s clock to the microsecond.';

-- The limits are those of migration 33.
CREATE FUNCTION ffx_check_limits(within text, limits jsonb) RETURNS TABLE (ids uuid[], units bigint[], stored jsonb)
LANGUAGE plpgsql
STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    given record;
    other text; -- a field that is unknown
    taken numeric;
    declared bigint;
BEGIN
    IF limits IS NULL OR limits = '[]' THEN
        RETURN;
    ELSIF jsonb_typeof(limits) <> 'array' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: limits must be an array of objects';
    ELSIF jsonb_array_length(limits) > 4 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: limits must be at most 4';
    END IF;
    stored := '[]';
    FOR given IN
        SELECT l.value AS fields, l.value ->> 'name' AS name, coalesce(l.value ->> 'key', '') AS key
        FROM jsonb_array_elements(limits) WITH ORDINALITY AS l
        ORDER BY l.ordinality
    LOOP
        IF jsonb_typeof(given.fields) <> 'object' THEN
            RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: limits must be an array of objects';
        END IF;
        other := (SELECT min(f.field) FROM jsonb_object_keys(given.fields) AS f (field) WHERE f.field NOT IN ('name', 'key', 'units'));
        taken := CASE
            WHEN NOT given.fields ? 'units' THEN 1
            WHEN jsonb_typeof(given.fields -> 'units') = 'number' THEN (given.fields ->> 'units')::numeric
        END;
        IF other IS NOT NULL THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'ffx_create: limits must have name, key and units, and not ' || to_json(other);
        ELSIF coalesce(jsonb_typeof(given.fields -> 'name'), '') <> 'string' OR octet_length(given.name) NOT BETWEEN 1 AND 512 THEN
            RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: limits must have names of 1 to 512 bytes';
        ELSIF jsonb_typeof(given.fields -> 'key') <> 'string' OR octet_length(given.key) > 512 THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'ffx_create: limit ' || to_json(given.name) || ' must have as its key a text of at most 512 bytes';
        ELSIF (taken BETWEEN 1 AND 1000000000 AND taken = trunc(taken)) IS NOT TRUE THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'ffx_create: limit ' || to_json(given.name) || ' must have units from 1 to 1000000000';
        END IF;
        SELECT l.declared_units
        INTO declared
        FROM ffx_limit AS l
        WHERE
            l.namespace = within
            AND l.name = given.name;
        IF NOT FOUND THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'ffx_create: limit ' || to_json(given.name) || ' does not exist in namespace ' || to_json(within),
                HINT = 'Declare it with limit.Declare. The limits of a kind are declared by its first creation in Go.';
        ELSIF taken > declared THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'ffx_create: limit ' || to_json(given.name) || ' has ' || declared || ' units, but the execution takes ' || taken::bigint;
        END IF;
        ids := ids || encode(
            substring(sha256(
                convert_to(within, 'UTF8') || '\x00' || convert_to(given.name, 'UTF8') || '\x00' || convert_to(given.key, 'UTF8') || '\x00'
            ) FOR 16),
            'hex'
        )::uuid;
        IF cardinality(ids) > cardinality(ARRAY(SELECT DISTINCT unnest(ids))) THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'ffx_create: limit ' || to_json(given.name) || ' is named twice with the same key';
        END IF;
        units := units || taken::bigint;
        stored := stored || jsonb_build_array(
            jsonb_build_object('name', given.name, 'key', given.key)
            || CASE WHEN taken > 1 THEN jsonb_build_object('units', taken::bigint) ELSE '{}' END
        );
    END LOOP;
    IF 1 = ALL (units) THEN
        units := NULL;
    END IF;
    RETURN NEXT;
END;
$$;

COMMENT ON FUNCTION ffx_check_limits(within text, limits jsonb) IS
    'Checks the limits that ffx_create is given, and returns what the execution stores: the ids of their keys, the units, NULL if all are 1, and the array in its document. No row: there are no limits.';

CREATE FUNCTION ffx_create(
    kind text, lane text DEFAULT NULL, payload jsonb DEFAULT NULL, priority integer DEFAULT NULL, tags jsonb DEFAULT NULL,
    delay_until timestamptz DEFAULT NULL, namespace text DEFAULT NULL, idempotency_key text DEFAULT NULL, limits jsonb DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    wanted text := kind;
    on_lane text := coalesce(lane, 'default');
    within text := coalesce(namespace, 'default');
    given text := nullif(idempotency_key, '');
    place text; -- of the key, as it is stored
    input bytea := convert_to(payload::text, 'UTF8');
    partition smallint;
    id uuid := ffx_new_id();
    now_ms bigint := ffx_now_ms(NULL);
    delay_ms bigint; -- the end of the delay
    window_ms CONSTANT bigint := 86400000;
    tag record;
    gates record; -- the limits, as they are stored
    gated boolean; -- it waits for them, and for nothing before
    earlier uuid; -- the execution that has the key
    in_window boolean; -- and still claims it
BEGIN
    IF coalesce(octet_length(wanted), 0) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: kind must have 1 to 255 bytes';
    ELSIF on_lane COLLATE "C" !~ '^[ -~]{1,64}$' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: lane must have 1 to 64 printable ASCII characters';
    ELSIF octet_length(within) NOT BETWEEN 1 AND 255 OR within COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: namespace must have 1 to 255 bytes, and no control characters';
    ELSIF octet_length(input) > 1048576 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: payload must have at most 1048576 bytes as text';
    ELSIF octet_length(given) > 1024 OR given LIKE E'\x01%' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: idempotency_key must have at most 1024 bytes, and not begin with U+0001';
    ELSIF jsonb_typeof(tags) <> 'object' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: tags must be an object of texts';
    ELSIF NOT isfinite(delay_until) OR delay_until <= to_timestamp(0) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: delay_until must be finite and after 1970';
    END IF;
    FOR tag IN SELECT t.key, t.value FROM jsonb_each(tags) AS t LOOP
        IF octet_length(tag.key) NOT BETWEEN 1 AND 256 THEN
            RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: tags must have keys of 1 to 256 bytes';
        ELSIF starts_with(tag.key, 'ffx.') THEN
            RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: tags must not have keys that begin with ffx.';
        ELSIF jsonb_typeof(tag.value) <> 'string' THEN
            RAISE invalid_parameter_value USING MESSAGE = 'ffx_create: tags must be an object of texts';
        ELSIF octet_length(tag.value #>> '{}') > 65536 OR tag.key = 'cairn.instance_id' AND octet_length(tag.value #>> '{}') > 1024 THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'ffx_create: tags must have values of at most 65536 bytes, and cairn.instance_id one of at most 1024';
        END IF;
    END LOOP;
    partition := ffx_lane_partition(on_lane, coalesce(nullif(current_setting('ffx.flow_partitions', true), '')::integer, 256));
    delay_ms := floor(extract(epoch FROM delay_until) * 1000)::bigint;
    IF delay_ms <= now_ms THEN
        delay_ms := NULL;
    END IF;
    SELECT c.ids, c.units, c.stored
    INTO gates
    FROM ffx_check_limits(within, limits) AS c;
    gated := delay_ms IS NULL AND gates.ids IS NOT NULL;

    IF given IS NOT NULL THEN
        place := E'\x01' || octet_length('lane ' || on_lane) || ':lane ' || on_lane || octet_length(wanted) || ':' || wanted || given;
        LOOP
            -- A key of the former scope, the caller's key alone, holds too while its window lasts.
            SELECT d.execution_id, true
            INTO earlier, in_window
            FROM ffx_create_dedup AS d
            WHERE
                d.partition_key = partition
                AND d.namespace = within
                AND d.idempotency_key = given
                AND d.expires_at_ms > now_ms;
            EXIT WHEN FOUND;
            INSERT INTO ffx_create_dedup (partition_key, namespace, idempotency_key, execution_id, expires_at_ms)
            VALUES (partition, within, place, id, now_ms + window_ms)
            ON CONFLICT ON CONSTRAINT ffx_create_dedup_pkey DO NOTHING;
            EXIT WHEN FOUND;
            SELECT d.execution_id, d.expires_at_ms > now_ms
            INTO earlier, in_window
            FROM ffx_create_dedup AS d
            WHERE
                d.partition_key = partition
                AND d.namespace = within
                AND d.idempotency_key = place
            FOR UPDATE;
            EXIT WHEN FOUND;
        END LOOP;
        IF in_window THEN
            PERFORM
            FROM ff_exec_core AS e
            WHERE
                e.partition_key = partition
                AND e.execution_id = earlier
                AND (
                    e.flow_id IS NOT NULL
                    OR e.lane_id <> on_lane
                    OR coalesce(e.raw_fields ->> 'execution_kind', '') <> wanted
                    OR coalesce(e.raw_fields ->> 'payload_encoding', '') <> ''
                    OR coalesce(e.payload, '') <> coalesce(input, '')
                );
            IF FOUND THEN
                RAISE unique_violation USING
                    MESSAGE = 'ffx_create: idempotency_key belongs to an execution with another payload, kind or lane',
                    DETAIL = 'It is {fp:' || partition || '}:' || earlier || '.';
            END IF;
            RETURN '{fp:' || partition || '}:' || earlier;
        ELSIF earlier IS NOT NULL THEN
            UPDATE ffx_create_dedup AS d
            SET
                execution_id = id,
                expires_at_ms = now_ms + window_ms
            WHERE
                d.partition_key = partition
                AND d.namespace = within
                AND d.idempotency_key = place;
        END IF;
    END IF;

    -- The columns of queries/execution_create.sql; its trigger writes the queue entry.
    INSERT INTO ff_exec_core (
        partition_key, execution_id, lane_id, required_capabilities, attempt_index, lifecycle_phase, ownership_state,
        eligibility_state, public_state, attempt_state, blocking_reason, priority, created_at_ms, deadline_at_ms, payload,
        raw_fields, ffx_namespace, ffx_instance_tag, ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count,
        ffx_lease_epoch, ffx_delay_until_ms, ffx_execution_deadline_ms, ffx_limit_ids, ffx_limit_units, ffx_gate_id
    )
    VALUES (
        partition, id, on_lane, '{}', 0, 'runnable', 'unowned',
        CASE WHEN gated THEN 'blocked_by_quota' WHEN delay_ms IS NULL THEN 'eligible_now' ELSE 'not_eligible_until_time' END,
        CASE WHEN gated THEN 'rate_limited' WHEN delay_ms IS NULL THEN 'waiting' ELSE 'delayed' END,
        'pending_first_attempt',
        CASE WHEN gated THEN 'waiting_for_quota' WHEN delay_ms IS NULL THEN 'waiting_for_worker' ELSE 'waiting_for_delay' END,
        least(greatest(coalesce(priority, 0), 0), 9000), now_ms, delay_ms, input,
        jsonb_build_object(
            'namespace', within, 'execution_kind', wanted, 'creator_identity', '', 'total_attempt_count', '0',
            'tags', coalesce(tags, '{}'), 'last_mutation_at', now_ms::text
        ) || CASE WHEN given IS NULL THEN '{}' ELSE jsonb_build_object('idempotency_key', given) END
        || CASE WHEN gates.stored IS NULL THEN '{}' ELSE jsonb_build_object('ffx_limits', gates.stored) END,
        within, tags ->> 'cairn.instance_id', now_ms, 0, 0, 0, delay_ms, 0, gates.ids, gates.units,
        CASE WHEN gated THEN gates.ids[1] END
    );
    INSERT INTO ff_lane_registry (lane_id, registered_at_ms, registered_by)
    VALUES (on_lane, now_ms, 'create_execution')
    ON CONFLICT DO NOTHING;
    -- Sent by the commit. Equal notifications of a transaction are one.
    IF gated THEN
        PERFORM pg_notify('ffx_gate', 'changed');
    ELSIF delay_ms IS NULL THEN
        PERFORM pg_notify('ffx_ready', on_lane);
    END IF;
    RETURN '{fp:' || partition || '}:' || id;
END;
$$;

COMMENT ON FUNCTION ffx_create(
    kind text, lane text, payload jsonb, priority integer, tags jsonb, delay_until timestamptz, namespace text, idempotency_key text,
    limits jsonb
) IS 'Creates an execution in the caller''s transaction, with the rights of a creator. Returns its id, or that of the earlier one with the same idempotency key. NULL stands for the default.';

-- migrate:down

DROP FUNCTION ffx_create(text, text, jsonb, integer, jsonb, timestamptz, text, text, jsonb);

DROP FUNCTION ffx_check_limits(text, jsonb);

DROP FUNCTION ffx_new_id();

DROP FUNCTION ffx_lane_partition(text, integer);
