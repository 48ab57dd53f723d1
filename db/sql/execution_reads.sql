-- name: GetExecution :one
-- GetExecution returns one execution with the current attempt and, if suspended, the wait, for all single reads. No
-- row: the execution does not exist.
--
-- Passages: unused_signals.
-- Used by: engine.DescribeExecution, engine.ExecutionState.
-- Locks: none; one snapshot.
SELECT
    e.flow_id,
    e.lane_id,
    e.required_capabilities,
    e.lifecycle_phase,
    e.ownership_state,
    e.eligibility_state,
    e.public_state,
    e.attempt_state,
    coalesce(e.blocking_reason, '')::text AS blocking_reason,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    e.cancelled_by,
    e.priority,
    coalesce(e.ffx_created_at_ms, e.created_at_ms)::bigint AS created_at_ms,
    e.terminal_at_ms,
    e.deadline_at_ms,
    e.started_at_ms,
    e.lease_reclaim_count,
    e.ffx_unique_key,
    e.raw_fields,
    e.ffx_last_mutation_at_ms,
    e.ffx_attempt_count,
    e.ffx_retry_count,
    e.ffx_lease_epoch,
    e.ffx_delay_until_ms,
    e.ffx_execution_deadline_ms,
    e.ffx_budget_ids,
    e.ffx_quota_policy_id,
    e.ffx_limit_ids,
    e.ffx_gate_id,
    (
        -- The executions before this one. Looked up only if the execution waits for a limit.
        SELECT count(*)
        FROM (
            SELECT
            FROM ffx_waiting AS b
            WHERE
                b.gate_id = e.ffx_gate_id
                AND (b.rank, b.created_at_ms, b.execution_id) < (- e.priority::bigint, e.created_at_ms, e.execution_id)
            LIMIT 1000
        ) AS n
    )::integer AS gate_ahead,
    coalesce(seat.place, 0)::bigint AS sequence_place,
    coalesce(seat.ahead, 0)::integer AS sequence_ahead,
    coalesce(seat.first_partition_key, 0)::smallint AS sequence_first_partition_key,
    seat.first_execution_id AS sequence_first_execution_id,
    seat.stopped_at_ms AS sequence_stopped_at_ms,
    coalesce(cur.attempt_index, -1)::integer AS current_index,
    cur.worker_id AS current_worker_id,
    cur.worker_instance_id AS current_worker_instance_id,
    coalesce(cur.lease_epoch, 0)::bigint AS current_epoch,
    cur.lease_expires_at_ms AS current_lease_expires_at_ms,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(cur.raw_fields, '{}')::jsonb AS current_raw_fields,
    cur.ffx_attempt_id AS current_attempt_id,
    cur.ffx_lease_id AS current_lease_id,
    coalesce(cur.ffx_stream_frames, 0)::bigint AS current_frames,
    coalesce(p.outcome, '')::text AS pointer_outcome,
    s.ffx_primary_waitpoint_id AS primary_waitpoint_id,
    s.suspension_id::uuid AS suspension_id,
    coalesce(s.ffx_open_since_ms, s.suspended_at_ms, 0)::bigint AS waiting_since_ms,
    s.timeout_at_ms AS wait_timeout_at_ms,
    coalesce(s.timeout_behavior, '')::text AS timeout_behavior,
    s.condition AS wait_condition,
    coalesce(s.ffx_asked, '')::text AS asked,
    u.unused_signals,
    coalesce((
        SELECT max(t.attempt_index) + 1
        FROM ff_attempt AS t
        WHERE
            t.partition_key = e.partition_key
            AND t.execution_id = e.execution_id
    ), 0)::integer AS attempt_rows,
    (
        SELECT t.started_at_ms
        FROM ff_attempt AS t
        WHERE
            t.partition_key = e.partition_key
            AND t.execution_id = e.execution_id
            AND t.started_at_ms IS NOT NULL
        ORDER BY t.attempt_index
        LIMIT 1
    ) AS first_attempt_started_at_ms
FROM ff_exec_core AS e
LEFT JOIN LATERAL (
    SELECT
        c.attempt_index,
        c.worker_id,
        c.worker_instance_id,
        c.lease_epoch,
        c.lease_expires_at_ms,
        c.outcome,
        c.raw_fields,
        c.ffx_attempt_id,
        c.ffx_lease_id,
        c.ffx_stream_frames
    FROM ff_attempt AS c
    WHERE
        c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN LATERAL (
    SELECT t.outcome
    FROM ff_attempt AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND t.attempt_index = e.attempt_index
    LIMIT 1
) AS p ON true
LEFT JOIN ff_suspension_current AS s
    ON s.partition_key = e.partition_key
    AND s.execution_id = e.execution_id
    AND e.lifecycle_phase = 'suspended'
LEFT JOIN LATERAL (
    -- The place in the sequence, and the members before. Without a sequence nothing is looked up.
    SELECT
        m.place,
        (
            SELECT count(*)
            FROM (
                SELECT
                FROM ffx_sequence_member AS b
                WHERE
                    b.partition_key = m.partition_key
                    AND b.sequence_id = m.sequence_id
                    AND b.place < m.place
                LIMIT 1000
            ) AS n
        ) AS ahead,
        f.execution_partition_key AS first_partition_key,
        f.execution_id AS first_execution_id,
        q.stopped_at_ms
    FROM ffx_sequence_member AS m
    LEFT JOIN LATERAL (
        SELECT
            t.execution_partition_key,
            t.execution_id
        FROM ffx_sequence_member AS t
        WHERE
            t.partition_key = m.partition_key
            AND t.sequence_id = m.sequence_id
        ORDER BY t.place
        LIMIT 1
    ) AS f ON true
    LEFT JOIN LATERAL (
        SELECT t.stopped_at_ms
        FROM ffx_sequence AS t
        WHERE
            t.partition_key = m.partition_key
            AND t.sequence_id = m.sequence_id
        LIMIT 1
    ) AS q ON true
    WHERE
        m.partition_key = get_byte(uuid_send(e.ffx_sequence), 0)::smallint
        AND m.sequence_id = e.ffx_sequence
        AND m.execution_id = e.execution_id
    LIMIT 1
) AS seat ON true
LEFT JOIN LATERAL (
    -- How many signals of a suspension s no wait has used yet, as an object by waitpoint key; NULL: none.
    SELECT jsonb_object_agg(k.waitpoint_key, k.signals) AS unused_signals
    FROM (
        SELECT
            m.waitpoint_key,
            count(*) AS signals
        FROM jsonb_each(CASE WHEN jsonb_typeof(s.member_map) = 'object' THEN s.member_map END) AS m (waitpoint_key, list)
        CROSS JOIN LATERAL jsonb_path_query(m.list, '$[*].signal_id') AS g (id)
        WHERE NOT s.satisfied_set ? (g.id #>> '{}')
        GROUP BY m.waitpoint_key
    ) AS k
) AS u ON true
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: GetExecutionInput :one
-- GetExecutionInput returns the columns a worker needs to run an execution. No row: the execution does not exist.
--
-- Used by: engine.ExecutionInput.
-- Locks: none.
SELECT
    e.payload,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    (e.raw_fields -> 'tags')::jsonb AS tags
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: GetExecutionResult :one
-- GetExecutionResult returns the stored result and the facts the outcome is derived from. No row: the execution does
-- not exist.
--
-- Used by: engine.ExecutionResult.
-- Locks: none; one snapshot.
SELECT
    e.result,
    e.lifecycle_phase,
    e.eligibility_state,
    e.public_state,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome
FROM ff_exec_core AS e
LEFT JOIN LATERAL (
    SELECT c.outcome
    FROM ff_attempt AS c
    WHERE
        c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN LATERAL (
    SELECT t.outcome
    FROM ff_attempt AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND t.attempt_index = e.attempt_index
    LIMIT 1
) AS p ON true
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: GetExecutionProgress :one
-- GetExecutionProgress returns the last reported progress of an execution, each part as stored. No row: the execution
-- does not exist.
--
-- Used by: engine.ExecutionProgress.
-- Locks: none.
SELECT
    coalesce(e.raw_fields ->> 'progress_pct', '')::text AS percent,
    coalesce(e.raw_fields ->> 'progress_message', '')::text AS message,
    coalesce(e.raw_fields ->> 'progress_updated_at', '')::text AS updated_at
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: GetExecutionExists :one
-- GetExecutionExists returns whether an execution exists.
--
-- Used by: engine.UpstreamResults.
-- Locks: none.
SELECT EXISTS (
    SELECT
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = @partition_key
        AND e.execution_id = @execution_id
);

-- name: GetExecutionTag :one
-- GetExecutionTag returns one tag and whether the tag is set. No row: the execution does not exist.
--
-- Used by: engine.ExecutionTag.
-- Locks: none.
SELECT
    coalesce(e.raw_fields -> 'tags' ->> @tag_key::text, '')::text AS tag_value,
    (e.raw_fields -> 'tags' ->> @tag_key::text IS NOT NULL)::boolean AS is_set
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: SetExecutionTag :execrows
-- SetExecutionTag sets one tag, creating a missing tags object. 0 rows: the execution does not exist. One statement
-- reads and writes, so concurrent writers of other tags lose nothing.
--
-- Used by: engine.SetExecutionTag.
-- Locks: L1 waits (the execution row, UPDATE).
UPDATE ff_exec_core AS e
SET
    raw_fields = jsonb_set(
        CASE WHEN jsonb_typeof(e.raw_fields) = 'object' THEN e.raw_fields ELSE '{}'::jsonb END,
        '{tags}',
        CASE WHEN jsonb_typeof(e.raw_fields -> 'tags') = 'object' THEN e.raw_fields -> 'tags' ELSE '{}'::jsonb END
            || jsonb_build_object(@tag_key::text, @tag_value::text)
    ) || jsonb_build_object('last_mutation_at', ffx_now_ms(sqlc.narg(now_ms))::text),
    ffx_instance_tag = CASE WHEN @tag_key::text = 'cairn.instance_id' THEN @tag_value::text ELSE e.ffx_instance_tag END,
    ffx_last_mutation_at_ms = ffx_now_ms(sqlc.narg(now_ms))
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;
