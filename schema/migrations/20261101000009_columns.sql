-- The columns this library adds to the reference's tables. All are nullable without a default, so
-- that the reference's inserts stay valid; NULL means never written by this library.
--
-- From this file on a migration is also applied to databases that the reference made, part by part:
-- each "object" line starts a part, and each part there is one transaction (see Adopt). A part holds
-- as many locks as its table has partitions, so it touches one table. A down part needs no such lines.

-- migrate:up

-- object: ff_exec_core columns
ALTER TABLE ff_exec_core
    ADD COLUMN ffx_last_mutation_at_ms bigint,
    ADD COLUMN ffx_attempt_count integer,
    ADD COLUMN ffx_retry_count integer,
    -- The highest epoch ever given to a lease of this execution.
    ADD COLUMN ffx_lease_epoch bigint,
    ADD COLUMN ffx_delay_until_ms bigint,
    -- 0: no deadline.
    ADD COLUMN ffx_execution_deadline_ms bigint;

-- object: ffx_first_kilobyte
-- The longest beginning of a text of at most 1024 bytes; a character has at most four.
CREATE FUNCTION ffx_first_kilobyte(value text) RETURNS text
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT left(value, max(n))
    FROM generate_series(256, 1024) AS n
    WHERE octet_length(left(value, n)) <= 1024;
$$;

-- object: ff_exec_core generated columns
-- Apart from the others: adding stored columns rewrites the table. Events carry both, and where FlowFabric made
-- the database, they are in indexes: an entry above some 2.7 kB would fail every claim and every end. This
-- library stores no longer ones than these take; the document keeps what another program stored.
ALTER TABLE ff_exec_core
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

-- object: ff_exec_core admission columns
ALTER TABLE ff_exec_core
    ADD COLUMN ffx_budget_ids uuid[],
    ADD COLUMN ffx_quota_policy_id uuid,
    ADD COLUMN ffx_quota_partition smallint,
    -- The budget or quota policy it waits for; NULL unless blocked by one.
    ADD COLUMN ffx_gate_id uuid,
    ADD COLUMN ffx_admitted boolean;

-- object: ff_attempt columns
ALTER TABLE ff_attempt
    ADD COLUMN ffx_attempt_type text,
    ADD COLUMN ffx_attempt_id uuid,
    ADD COLUMN ffx_lease_id uuid,
    ADD COLUMN ffx_timeout_at_ms bigint,
    ADD COLUMN ffx_delay_until_ms bigint,
    -- The last frame appended, and how many there are.
    ADD COLUMN ffx_stream_ts_ms bigint,
    ADD COLUMN ffx_stream_seq integer,
    ADD COLUMN ffx_stream_frames bigint;

-- object: ff_suspension_current columns
ALTER TABLE ff_suspension_current
    ADD COLUMN ffx_primary_waitpoint_id uuid,
    ADD COLUMN ffx_resume_delay_ms bigint,
    ADD COLUMN ffx_requested_by text,
    ADD COLUMN ffx_continuation_pointer text;

-- object: ff_waitpoint_hmac columns
ALTER TABLE ff_waitpoint_hmac
    ADD COLUMN ffx_verify_until_ms bigint;

-- object: ff_signal_event columns
ALTER TABLE ff_signal_event
    ADD COLUMN ffx_effect text;

-- object: ff_lease_event columns
ALTER TABLE ff_lease_event
    ADD COLUMN ffx_worker_instance_id text,
    ADD COLUMN ffx_revoked_by text;

-- migrate:down

ALTER TABLE ff_lease_event
    DROP COLUMN ffx_worker_instance_id,
    DROP COLUMN ffx_revoked_by;

ALTER TABLE ff_signal_event
    DROP COLUMN ffx_effect;

ALTER TABLE ff_waitpoint_hmac
    DROP COLUMN ffx_verify_until_ms;

ALTER TABLE ff_suspension_current
    DROP COLUMN ffx_primary_waitpoint_id,
    DROP COLUMN ffx_resume_delay_ms,
    DROP COLUMN ffx_requested_by,
    DROP COLUMN ffx_continuation_pointer;

ALTER TABLE ff_attempt
    DROP COLUMN ffx_attempt_type,
    DROP COLUMN ffx_attempt_id,
    DROP COLUMN ffx_lease_id,
    DROP COLUMN ffx_timeout_at_ms,
    DROP COLUMN ffx_delay_until_ms,
    DROP COLUMN ffx_stream_ts_ms,
    DROP COLUMN ffx_stream_seq,
    DROP COLUMN ffx_stream_frames;

ALTER TABLE ff_exec_core
    DROP COLUMN ffx_last_mutation_at_ms,
    DROP COLUMN ffx_attempt_count,
    DROP COLUMN ffx_retry_count,
    DROP COLUMN ffx_lease_epoch,
    DROP COLUMN ffx_delay_until_ms,
    DROP COLUMN ffx_execution_deadline_ms,
    DROP COLUMN ffx_namespace,
    DROP COLUMN ffx_instance_tag,
    DROP COLUMN ffx_budget_ids,
    DROP COLUMN ffx_quota_policy_id,
    DROP COLUMN ffx_quota_partition,
    DROP COLUMN ffx_gate_id,
    DROP COLUMN ffx_admitted;

DROP FUNCTION ffx_first_kilobyte(text);
