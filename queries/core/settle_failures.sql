-- name: ReadRetryFacts :many
-- ReadRetryFacts returns, for each item, the facts for a forecast whether a failure ends the execution; ord (from 0) is
-- the input position. The caller decides again under the row locks.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- engine.FailExecution, engine.FailExecutions, engine.ReleaseLeases, engine.DelayExecution, engine.DelayExecutions,
-- engine.WaitForChildren, engine.WaitForChildrenEach, engine.RecordStep,
-- engine.TakeSignal.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        generate_subscripts(@execution_ids::uuid[], 1) - 1 AS ord
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    i.ord::integer AS ord,
    e.flow_id,
    e.policy,
    coalesce(e.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(e.raw_fields ->> 'retry_count', '')::text AS raw_retry_count
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.flow_id,
        t.policy,
        t.ffx_retry_count,
        t.raw_fields
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e;

-- name: ScheduleRetries :many
-- ScheduleRetries ends failed attempts and schedules the next ones; a retry without delay is claimable at once. A
-- raised_epoch above 0 goes to both rows, so the holder of the attempt is refused from now on. fair is the share of a
-- claimable fair retry, and empty otherwise: the caller assigns a new place.
--
-- Used by: engine.FailExecution, engine.FailExecutions, upkeep.ExpireLeases, upkeep.ExpireAttempts.
-- Locks: L1 held; L2 held; L7 new.
WITH input AS (
    -- The failed attempts, and when the next one may begin.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@raised_epochs::bigint[]) AS raised_epoch,
        nullif(unnest(@lease_ids::text[]), '') AS lease_id,
        nullif(unnest(@worker_instance_ids::text[]), '') AS worker_instance_id,
        unnest(@delays_until_ms::bigint[]) AS delay_until_ms,
        unnest(@failure_reasons::text[]) AS failure_reason,
        unnest(@failure_categories::text[]) AS failure_category,
        unnest(@failure_classes::text[]) AS failure_class,
        unnest(@failure_details::text[]) AS failure_detail,
        nullif(unnest(@traces::text[]), '') AS trace
    LIMIT cardinality(@execution_ids::uuid[])
),
rescheduled AS (
    -- Their executions, waiting for the next attempt.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'runnable',
        ownership_state = 'unowned',
        eligibility_state = CASE
            WHEN i.delay_until_ms > @now_ms::bigint THEN 'not_eligible_until_time'
            ELSE 'eligible_now'
        END,
        public_state = CASE WHEN i.delay_until_ms > @now_ms::bigint THEN 'delayed' ELSE 'waiting' END,
        attempt_state = 'pending_retry_attempt',
        blocking_reason = CASE
            WHEN i.delay_until_ms > @now_ms::bigint THEN 'waiting_for_retry_backoff'
            ELSE 'waiting_for_worker'
        END,
        attempt_index = i.attempt_index + 1,
        deadline_at_ms = CASE
            WHEN i.delay_until_ms > @now_ms::bigint THEN least(
                i.delay_until_ms,
                nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0)
            )
            ELSE nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0)
        END,
        ffx_delay_until_ms = CASE WHEN i.delay_until_ms > @now_ms::bigint THEN i.delay_until_ms END,
        ffx_execution_deadline_ms = coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms, 0),
        -- A delayed retry withdraws the admission; an immediate retry keeps the admission.
        ffx_admitted = CASE WHEN i.delay_until_ms > @now_ms::bigint THEN NULL ELSE e.ffx_admitted END,
        ffx_gate_id = NULL,
        ffx_lease_epoch = CASE WHEN i.raised_epoch > 0 THEN i.raised_epoch ELSE e.ffx_lease_epoch END,
        ffx_retry_count = greatest(
            coalesce(e.ffx_retry_count, 0),
            CASE WHEN e.raw_fields ->> 'retry_count' ~ '^[0-9]{1,9}$' THEN (e.raw_fields ->> 'retry_count')::integer ELSE 0 END
        ) + 1,
        ffx_last_mutation_at_ms = @now_ms::bigint,
        ffx_trace = coalesce(i.trace, e.ffx_trace)
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        e.lane_id,
        e.eligibility_state,
        (e.ffx_limit_ids IS NOT NULL) AS has_limits,
        e.priority,
        CASE
            WHEN num_nulls(e.ffx_created_at_ms) = 0 AND e.eligibility_state = 'eligible_now' THEN e.raw_fields
        END AS fair_fields,
        i.attempt_index,
        i.raised_epoch,
        i.lease_id,
        i.worker_instance_id,
        CASE @lease_event::text WHEN 'revoked' THEN 'backend' END AS revoked_by,
        i.delay_until_ms,
        i.failure_reason,
        i.failure_category,
        i.failure_class,
        i.failure_detail,
        e.ffx_namespace,
        e.ffx_instance_tag
),
ended_attempts AS (
    -- The failed attempts, ended.
    UPDATE ff_attempt AS a
    SET
        lease_epoch = CASE WHEN r.raised_epoch > 0 THEN r.raised_epoch ELSE a.lease_epoch END,
        ffx_delay_until_ms = r.delay_until_ms,
        raw_fields = a.raw_fields || jsonb_strip_nulls(jsonb_build_object(
            'failure_reason', r.failure_reason,
            'failure_category', r.failure_category,
            'failure_class', r.failure_class,
            'failure_detail', nullif(r.failure_detail, '')
        )),
        -- include set_attempt_ended: outcome = @attempt_outcome::text, at_ms = @now_ms::bigint
    FROM rescheduled AS r
    WHERE
        a.partition_key = ANY (ARRAY[r.partition_key])
        AND a.execution_id = r.execution_id
        AND a.attempt_index = r.attempt_index
),
lease_events AS (
    -- The lease events.
    -- include lease_events: rows = rescheduled, event_type = @lease_event::text, at_ms = @now_ms::bigint, revoked_by = r.revoked_by
)
SELECT
    r.partition_key,
    r.execution_id,
    r.lane_id,
    (r.eligibility_state = 'eligible_now')::boolean AS claimable,
    r.has_limits::boolean AS has_limits,
    r.priority::integer AS priority,
    coalesce(r.fair_fields ->> 'namespace', '')::text AS namespace,
    coalesce(r.fair_fields ->> 'ffx_fair', '')::text AS fair
FROM rescheduled AS r;

-- name: EndUnsuccessful :many
-- EndUnsuccessful ends executions without success and settles their attempts: failed by their worker, failed because
-- their leases were lost too often, or expired. A raised_epoch above 0 goes to both rows, so the holder of the attempt
-- is refused from now on. An attempt_index of -1: there was never an attempt; -2: the last one is settled already.
-- Returns the ended executions; a terminal row stays unchanged.
--
-- Used by: engine.FailExecution, engine.FailExecutions, upkeep.ExpireLeases, upkeep.ExpireAttempts,
-- upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue, interop.ReclaimExecution.
-- Locks: L1 held; L2 held; L7 new.
WITH input AS (
    -- The executions to end, and how.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@raised_epochs::bigint[]) AS raised_epoch,
        nullif(unnest(@lease_ids::text[]), '') AS lease_id,
        nullif(unnest(@worker_instance_ids::text[]), '') AS worker_instance_id,
        unnest(@lease_events::text[]) AS lease_event,
        unnest(@failure_reasons::text[]) AS failure_reason,
        unnest(@failure_categories::text[]) AS failure_category,
        unnest(@failure_classes::text[]) AS failure_class,
        unnest(@failure_details::text[]) AS failure_detail,
        nullif(unnest(@traces::text[]), '') AS trace
    LIMIT cardinality(@execution_ids::uuid[])
),
ended AS (
    -- Their rows, ended.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'terminal',
        public_state = @public_state::text,
        attempt_state = CASE i.attempt_index WHEN -1 THEN 'none' ELSE 'attempt_terminal' END,
        attempt_index = CASE WHEN i.attempt_index < 0 THEN e.attempt_index ELSE i.attempt_index END,
        terminal_at_ms = coalesce(e.terminal_at_ms, @now_ms::bigint),
        cancellation_reason = coalesce(e.cancellation_reason, sqlc.narg(cancellation_reason)::text),
        lease_reclaim_count = e.lease_reclaim_count + @lost_leases::integer,
        ffx_delay_until_ms = NULL,
        ffx_lease_epoch = CASE WHEN i.raised_epoch > 0 THEN i.raised_epoch ELSE e.ffx_lease_epoch END,
        ffx_trace = coalesce(i.trace, e.ffx_trace),
        raw_fields = e.raw_fields || jsonb_build_object(
            'failure_reason', i.failure_reason,
            'failure_category', i.failure_category,
            'failure_class', i.failure_class,
            'last_failure_message', i.failure_reason,
            'last_mutation_at', (@now_ms::bigint)::text
        ),
        -- include set_ended: at_ms = @now_ms::bigint
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
        AND e.lifecycle_phase NOT IN ('terminal', 'cancelled')
    RETURNING
        e.partition_key,
        e.execution_id,
        e.flow_id,
        i.attempt_index,
        i.raised_epoch,
        i.lease_id,
        i.worker_instance_id,
        i.lease_event,
        CASE i.lease_event WHEN 'revoked' THEN coalesce(sqlc.narg(revoked_by)::text, 'backend') END AS revoked_by,
        i.failure_detail,
        (e.ffx_limit_ids IS NOT NULL) AS has_limits,
        CASE WHEN e.ffx_sequence IS NOT NULL THEN e.lane_id END AS sequence_lane,
        e.ffx_namespace,
        e.ffx_instance_tag
),
ended_attempts AS (
    -- Their attempts, ended.
    UPDATE ff_attempt AS a
    SET
        lease_epoch = CASE WHEN d.raised_epoch > 0 THEN d.raised_epoch ELSE a.lease_epoch END,
        raw_fields = CASE d.failure_detail
            WHEN '' THEN a.raw_fields
            ELSE a.raw_fields || jsonb_build_object('failure_detail', d.failure_detail)
        END,
        -- include set_attempt_ended: outcome = @attempt_outcome::text, at_ms = @now_ms::bigint
    FROM ended AS d
    WHERE
        a.partition_key = ANY (ARRAY[d.partition_key])
        AND a.execution_id = d.execution_id
        AND a.attempt_index = d.attempt_index
),
lease_events AS (
    -- The lease events.
    -- include lease_events: rows = ended, event_type = r.lease_event, at_ms = @now_ms::bigint, revoked_by = r.revoked_by
        AND r.lease_event <> ''
)
SELECT
    d.partition_key,
    d.execution_id,
    d.flow_id,
    d.has_limits::boolean AS has_limits,
    coalesce(d.sequence_lane, '')::text AS sequence_lane
FROM ended AS d;
