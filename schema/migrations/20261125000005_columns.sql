-- The columns that this library adds to FlowFabric's tables. Each is nullable without a default, so that FlowFabric's
-- inserts stay valid. NULL: this library never wrote it.
--
-- usable-from: 20261125000001

-- migrate:up

ALTER TABLE ff_exec_core
    ADD COLUMN ffx_last_mutation_at_ms bigint,
    ADD COLUMN ffx_attempt_count integer,
    ADD COLUMN ffx_retry_count integer,
    ADD COLUMN ffx_lease_epoch bigint,
    ADD COLUMN ffx_delay_until_ms bigint,
    ADD COLUMN ffx_execution_deadline_ms bigint,
    ADD COLUMN ffx_created_at_ms bigint,
    ADD COLUMN ffx_trace text;

COMMENT ON COLUMN ff_exec_core.ffx_last_mutation_at_ms IS
    'Milliseconds since the Unix epoch: the last change other than a renewal. NULL: never written by this library; raw_fields.last_mutation_at may be later.';
COMMENT ON COLUMN ff_exec_core.ffx_attempt_count IS
    'Attempts made. NULL: never written by this library.';
COMMENT ON COLUMN ff_exec_core.ffx_retry_count IS
    'Retries scheduled; 0 again after a replay. NULL: never written by this library.';
COMMENT ON COLUMN ff_exec_core.ffx_lease_epoch IS
    'The greatest fencing token ever given to a lease of it; the next lease gets a greater one. Equal to the current attempt''s lease_epoch unless FlowFabric claimed since. NULL: never written by this library.';
COMMENT ON COLUMN ff_exec_core.ffx_delay_until_ms IS
    'Milliseconds since the Unix epoch: when a delayed one wakes up; NULL when it is not delayed.';
COMMENT ON COLUMN ff_exec_core.ffx_execution_deadline_ms IS
    'Milliseconds since the Unix epoch: the deadline. 0: none. Negative: the deadline, negated when it ended, so that no job looks at it again. NULL: never written by this library.';
COMMENT ON COLUMN ff_exec_core.ffx_created_at_ms IS
    'Milliseconds since the Unix epoch: when fair work was created, whose created_at_ms is its place in the queue. NULL: not fair; created_at_ms tells.';
COMMENT ON COLUMN ff_exec_core.ffx_trace IS
    'Trace context of the last run of its handler, a W3C traceparent. NULL: never observed.';

-- A character has at most four bytes. In PL/pgSQL, because each statement that inserts would parse the body of a
-- function in SQL, to see whether it can be inlined. It never can.
CREATE FUNCTION ffx_first_kilobyte(value text) RETURNS text
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
AS $$
BEGIN
    RETURN (
        SELECT left(value, max(n))
        FROM generate_series(256, 1024) AS n
        WHERE octet_length(left(value, n)) <= 1024
    );
END;
$$;

COMMENT ON FUNCTION ffx_first_kilobyte(value text) IS
    'The longest beginning of a text, in whole characters, that has at most 1024 bytes.';

-- Events carry both columns, some in indexes, where an entry above some 2.7 kB would fail every write. This library
-- refuses longer values, but FlowFabric stored them. The document then keeps the whole value.
ALTER TABLE ff_exec_core
    ADD COLUMN ffx_namespace text,
    ADD COLUMN ffx_instance_tag text;

COMMENT ON COLUMN ff_exec_core.ffx_namespace IS
    'raw_fields.namespace, its first 1024 bytes; events carry it.';
COMMENT ON COLUMN ff_exec_core.ffx_instance_tag IS
    'The tag cairn.instance_id, its first 1024 bytes; events carry it.';

ALTER TABLE ff_exec_core
    ADD COLUMN ffx_budget_ids uuid[],
    ADD COLUMN ffx_quota_policy_id uuid,
    ADD COLUMN ffx_quota_partition smallint,
    ADD COLUMN ffx_limit_ids uuid[],
    ADD COLUMN ffx_limit_units bigint[],
    ADD COLUMN ffx_gate_id uuid,
    ADD COLUMN ffx_admitted boolean;

COMMENT ON COLUMN ff_exec_core.ffx_budget_ids IS
    'Budgets that have to admit it, sorted; NULL: none.';
COMMENT ON COLUMN ff_exec_core.ffx_quota_policy_id IS
    'Quota policy that it names, one of its limits; NULL: none.';
COMMENT ON COLUMN ff_exec_core.ffx_quota_partition IS
    'partition_key of that quota policy.';
COMMENT ON COLUMN ff_exec_core.ffx_limit_ids IS
    'Limits that have to admit it, in the order in which it waits for them: ffx_gate.gate_id, which of a quota policy is its id; NULL: none.';
COMMENT ON COLUMN ff_exec_core.ffx_limit_units IS
    'Units that it takes of each of those limits; NULL: one of each.';
COMMENT ON COLUMN ff_exec_core.ffx_gate_id IS
    'Budget or limit that it waits for at the moment; NULL unless it is blocked by one.';
COMMENT ON COLUMN ff_exec_core.ffx_admitted IS
    'Whether its budgets and limits have let it in, until it ends or has to ask again; NULL: not asked, or given back.';

ALTER TABLE ff_attempt
    ADD COLUMN ffx_attempt_type text,
    ADD COLUMN ffx_attempt_id uuid,
    ADD COLUMN ffx_lease_id uuid,
    ADD COLUMN ffx_timeout_at_ms bigint,
    ADD COLUMN ffx_delay_until_ms bigint,
    ADD COLUMN ffx_resumed_at_ms bigint;

COMMENT ON COLUMN ff_attempt.ffx_attempt_type IS
    'Why it was made: initial, retry, reclaim, replay or fallback. NULL: by FlowFabric, see raw_fields.';
COMMENT ON COLUMN ff_attempt.ffx_attempt_id IS
    'Id of the attempt. NULL: by FlowFabric, see raw_fields.';
COMMENT ON COLUMN ff_attempt.ffx_lease_id IS
    'Id of its last lease by this library. NULL: by FlowFabric, see raw_fields.';
COMMENT ON COLUMN ff_attempt.ffx_timeout_at_ms IS
    'Milliseconds since the Unix epoch: when the attempt times out, whatever its lease; NULL: no timeout, or no lease. Belongs to a lease whose epoch is the execution''s ffx_lease_epoch.';
COMMENT ON COLUMN ff_attempt.ffx_delay_until_ms IS
    'Milliseconds since the Unix epoch: the wake-up that was chosen when it was retried, delayed or released; NULL after the next claim.';
COMMENT ON COLUMN ff_attempt.ffx_resumed_at_ms IS
    'Milliseconds since the Unix epoch: start of the last lease by this library, if an earlier one had begun the attempt; NULL: no lease resumed it.';

ALTER TABLE ff_suspension_current
    ADD COLUMN ffx_primary_waitpoint_id uuid;

COMMENT ON COLUMN ff_suspension_current.ffx_primary_waitpoint_id IS
    'The waitpoint that is shown for it. NULL: never written by this library.';

ALTER TABLE ff_waitpoint_hmac
    ADD COLUMN ffx_verify_until_ms bigint;

COMMENT ON COLUMN ff_waitpoint_hmac.ffx_verify_until_ms IS
    'Milliseconds since the Unix epoch: until when an inactive key still verifies. NULL: active, or retired by FlowFabric, which lets its keys verify for ever.';

ALTER TABLE ff_signal_event
    ADD COLUMN ffx_effect text;

COMMENT ON COLUMN ff_signal_event.ffx_effect IS
    'What it did to the suspension: satisfied, buffered or appended. NULL: written by FlowFabric.';

ALTER TABLE ff_lease_event
    ADD COLUMN ffx_worker_instance_id text,
    ADD COLUMN ffx_revoked_by text;

COMMENT ON COLUMN ff_lease_event.ffx_worker_instance_id IS
    'Process that has or had the lease. NULL: written by FlowFabric.';
COMMENT ON COLUMN ff_lease_event.ffx_revoked_by IS
    'Who took a revoked lease; NULL: not revoked, or written by FlowFabric.';

-- migrate:down

ALTER TABLE ff_lease_event
    DROP COLUMN ffx_worker_instance_id,
    DROP COLUMN ffx_revoked_by;

ALTER TABLE ff_signal_event
    DROP COLUMN ffx_effect;

ALTER TABLE ff_waitpoint_hmac
    DROP COLUMN ffx_verify_until_ms;

ALTER TABLE ff_suspension_current
    DROP COLUMN ffx_primary_waitpoint_id;

ALTER TABLE ff_attempt
    DROP COLUMN ffx_attempt_type,
    DROP COLUMN ffx_attempt_id,
    DROP COLUMN ffx_lease_id,
    DROP COLUMN ffx_timeout_at_ms,
    DROP COLUMN ffx_delay_until_ms,
    DROP COLUMN ffx_resumed_at_ms;

ALTER TABLE ff_exec_core
    DROP COLUMN ffx_last_mutation_at_ms,
    DROP COLUMN ffx_attempt_count,
    DROP COLUMN ffx_retry_count,
    DROP COLUMN ffx_lease_epoch,
    DROP COLUMN ffx_delay_until_ms,
    DROP COLUMN ffx_execution_deadline_ms,
    DROP COLUMN ffx_trace,
    DROP COLUMN ffx_created_at_ms,
    DROP COLUMN ffx_namespace,
    DROP COLUMN ffx_instance_tag,
    DROP COLUMN ffx_budget_ids,
    DROP COLUMN ffx_quota_policy_id,
    DROP COLUMN ffx_quota_partition,
    DROP COLUMN ffx_limit_ids,
    DROP COLUMN ffx_limit_units,
    DROP COLUMN ffx_gate_id,
    DROP COLUMN ffx_admitted;

DROP FUNCTION ffx_first_kilobyte(text);
