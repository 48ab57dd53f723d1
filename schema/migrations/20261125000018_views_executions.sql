-- Views for people and dashboards: executions, attempts and flows as this library's reads return them. They have one
-- spelling of each state, and instants as timestamptz. They leave out payloads, results and tokens. A role that may
-- select from the three views needs no right on the tables.
--
-- They are an interface: a column keeps its name, its type and its meaning. New columns come behind the last one, and
-- new values of states with new states of this library. Any other change becomes a new view beside the old one. A test
-- compares the columns with a recorded list. Two statements of this library, RecordEndedStates and SummariseFlows, read
-- ffx_execution, for rows that another program ended.
--
-- A row that the reads refuse, because it holds an unknown value, is there all the same: corruption names the column,
-- and what depends on the value is NULL.
--
-- usable-from: 20261125000001

-- migrate:up

-- timestamptz ends in the year 294276; deadlines that are as good as none lie beyond.
CREATE FUNCTION ffx_read_instant(ms bigint) RETURNS timestamptz
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN ms IS NOT NULL
            THEN to_timestamp(least(greatest(ms, -210000000000000), 9224318000000000) / 1000::double precision)
    END;
$$;

COMMENT ON FUNCTION ffx_read_instant(bigint) IS
    'Milliseconds since the Unix epoch as an instant; beyond what timestamptz can hold, the last one that it can.';

CREATE FUNCTION ffx_read_text(document jsonb, key text) RETURNS text
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE WHEN jsonb_typeof(document -> key) = 'string' THEN document ->> key END;
$$;

COMMENT ON FUNCTION ffx_read_text(jsonb, text) IS
    'The string at a key of an object; NULL when there is none.';

-- Counts and instants stand in documents as numbers or as strings, and some are neither.
CREATE FUNCTION ffx_read_number(document jsonb, key text) RETURNS bigint
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN document ->> key ~ '^([+]?[0-9]{1,40}|-0{1,40})$' THEN
            CASE
                WHEN (document ->> key)::numeric <= 9223372036854775807 THEN (document ->> key)::numeric::bigint
            END
    END;
$$;

COMMENT ON FUNCTION ffx_read_number(jsonb, text) IS
    'The whole number from 0 on at a key of an object, stored as a number or as a string; NULL when there is none.';

-- The forms that ids are accepted in, fewer than the type accepts.
CREATE FUNCTION ffx_read_uuid(value text) RETURNS uuid
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN value ~ '^[0-9a-fA-F]{32}$'
            OR value ~ '^(urn:uuid:)?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
            OR value ~ '^\{[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\}$'
            THEN replace(value, 'urn:uuid:', '')::uuid
    END;
$$;

COMMENT ON FUNCTION ffx_read_uuid(text) IS
    'The id that a text holds; NULL when it holds none.';

-- Each row costs a lookup of its current attempt. attempts, started_at, waitpoint_id and corruption may look further,
-- when they are asked for.
CREATE VIEW ffx_execution AS
SELECT
    e.partition_key,
    e.execution_id,
    '{fp:' || e.partition_key || '}:' || e.execution_id AS id,
    e.flow_id,
    e.lane_id,
    coalesce(ffx_read_text(e.raw_fields, 'namespace'), '') AS namespace,
    coalesce(ffx_read_text(e.raw_fields, 'execution_kind'), '') AS kind,
    e.priority,
    CASE
        WHEN jsonb_typeof(e.raw_fields -> 'tags') = 'object' AND e.raw_fields -> 'tags' <> '{}' THEN (
            SELECT coalesce(jsonb_object_agg(tag.key, tag.value), '{}')
            FROM jsonb_each(e.raw_fields -> 'tags') AS tag
            WHERE jsonb_typeof(tag.value) = 'string'
        )
        ELSE '{}'::jsonb
    END AS tags,
    e.required_capabilities,
    CASE
        WHEN n.phase IS NULL OR n.eligibility IS NULL OR n.stored_state IS NULL THEN NULL
        WHEN n.stored_state = 'resumable' AND n.phase = 'runnable' AND n.eligibility = 'eligible_now' THEN 'resumable'
        WHEN n.phase = 'terminal' THEN
            CASE o.outcome
                WHEN 'success' THEN 'completed'
                WHEN 'cancelled' THEN 'cancelled'
                WHEN 'expired' THEN 'expired'
                WHEN 'skipped' THEN 'skipped'
                ELSE 'failed'
            END
        WHEN n.phase = 'suspended' THEN 'suspended'
        WHEN n.phase = 'active' THEN 'active'
        WHEN n.phase = 'submitted' THEN 'waiting'
        WHEN n.eligibility = 'not_eligible_until_time' THEN 'delayed'
        WHEN n.eligibility = 'blocked_by_dependencies' THEN 'waiting_children'
        WHEN n.eligibility IN ('blocked_by_budget', 'blocked_by_quota') THEN 'rate_limited'
        ELSE 'waiting'::text
    END AS state,
    o.outcome,
    n.phase,
    n.ownership,
    n.eligibility,
    n.attempt_state,
    n.blocking_reason,
    CASE WHEN n.phase <> 'terminal' THEN nullif(ffx_read_text(e.raw_fields, 'blocking_detail'), '') END AS blocking_detail,
    nullif(e.cancellation_reason, '') AS cancellation_reason,
    nullif(e.cancelled_by, '') AS cancelled_by,
    coalesce(
        nullif(ffx_read_text(e.raw_fields, 'failure_reason'), ''),
        nullif(ffx_read_text(e.raw_fields, 'last_failure_message'), '')
    ) AS failure_reason,
    nullif(ffx_read_text(e.raw_fields, 'failure_category'), '') AS failure_category,
    ffx_read_instant(coalesce(e.ffx_created_at_ms, e.created_at_ms)) AS created_at,
    ffx_read_instant(coalesce(e.started_at_ms, (
        SELECT t.started_at_ms
        FROM ff_attempt AS t
        WHERE
            t.partition_key = e.partition_key
            AND t.execution_id = e.execution_id
            AND t.started_at_ms IS NOT NULL
        ORDER BY t.attempt_index
        LIMIT 1
    ))) AS started_at,
    ffx_read_instant(e.terminal_at_ms) AS ended_at,
    ffx_read_instant(coalesce(
        nullif(greatest(e.ffx_last_mutation_at_ms, ffx_read_number(e.raw_fields, 'last_mutation_at'), 0), 0),
        e.ffx_created_at_ms,
        e.created_at_ms
    )) AS last_mutation_at,
    ffx_read_instant(CASE
        WHEN n.eligibility <> 'not_eligible_until_time' THEN NULL
        WHEN d.wake_up_ms IS NOT NULL THEN d.wake_up_ms
        WHEN d.is_retry THEN ffx_read_number(e.raw_fields, 'delay_until')
        ELSE e.deadline_at_ms
    END) AS delay_until,
    ffx_read_instant(CASE
        WHEN d.deadline_ms IS NOT NULL THEN nullif(greatest(d.deadline_ms, 0), 0)
        WHEN n.eligibility <> 'not_eligible_until_time' OR (d.wake_up_ms IS NULL AND d.is_retry)
            THEN nullif(greatest(e.deadline_at_ms, 0), 0)
    END) AS deadline,
    cur.attempt_index AS attempt,
    CASE
        WHEN ffx_read_text(cur.raw_fields, 'attempt_id') <> '' AND (cur.lease_epoch = e.ffx_lease_epoch) IS NOT TRUE
            THEN ffx_read_uuid(ffx_read_text(cur.raw_fields, 'attempt_id'))
        ELSE cur.ffx_attempt_id
    END AS attempt_id,
    cur.worker_id,
    cur.worker_instance_id,
    CASE
        WHEN NOT held.is_held THEN NULL
        WHEN ffx_read_text(cur.raw_fields, 'lease_id') <> '' AND (cur.lease_epoch = e.ffx_lease_epoch) IS NOT TRUE
            THEN ffx_read_uuid(ffx_read_text(cur.raw_fields, 'lease_id'))
        ELSE cur.ffx_lease_id
    END AS lease_id,
    CASE WHEN held.is_held THEN greatest(cur.lease_epoch, 0) END AS lease_epoch,
    CASE WHEN held.is_held THEN ffx_read_instant(cur.lease_expires_at_ms) END AS lease_expires_at,
    coalesce(
        CASE
            WHEN e.lifecycle_phase = 'suspended' THEN (
                SELECT s.ffx_primary_waitpoint_id
                FROM ff_suspension_current AS s
                WHERE
                    s.partition_key = e.partition_key
                    AND s.execution_id = e.execution_id
            )
        END,
        ffx_read_uuid(ffx_read_text(e.raw_fields, 'current_waitpoint_id'))
    ) AS waitpoint_id,
    greatest(
        (
            SELECT max(t.attempt_index)::bigint + 1
            FROM ff_attempt AS t
            WHERE
                t.partition_key = e.partition_key
                AND t.execution_id = e.execution_id
        ),
        e.ffx_attempt_count,
        ffx_read_number(e.raw_fields, 'total_attempt_count'),
        0
    ) AS attempts,
    greatest(e.ffx_retry_count, ffx_read_number(e.raw_fields, 'retry_count'), 0) AS retries,
    greatest(e.lease_reclaim_count, 0) AS leases_lost,
    e.ffx_budget_ids AS budget_ids,
    e.ffx_quota_policy_id AS quota_policy_id,
    CASE
        WHEN n.phase IS NULL THEN 'ff_exec_core.lifecycle_phase'
        WHEN n.ownership IS NULL THEN 'ff_exec_core.ownership_state'
        WHEN n.eligibility IS NULL THEN 'ff_exec_core.eligibility_state'
        WHEN n.stored_state IS NULL THEN 'ff_exec_core.public_state'
        WHEN n.attempt_state IS NULL THEN 'ff_exec_core.attempt_state'
        WHEN n.blocking_reason IS NULL THEN 'ff_exec_core.blocking_reason'
        WHEN e.lane_id !~ '^[ -~]{1,64}$' COLLATE "C" THEN 'ff_exec_core.lane_id'
        WHEN ffx_read_text(e.raw_fields, 'current_waitpoint_id') <> ''
            AND ffx_read_uuid(ffx_read_text(e.raw_fields, 'current_waitpoint_id')) IS NULL
            AND (e.lifecycle_phase <> 'suspended' OR (
                SELECT s.ffx_primary_waitpoint_id
                FROM ff_suspension_current AS s
                WHERE
                    s.partition_key = e.partition_key
                    AND s.execution_id = e.execution_id
            ) IS NULL)
            THEN 'ff_exec_core.raw_fields.current_waitpoint_id'
        WHEN ffx_read_text(cur.raw_fields, 'attempt_id') <> ''
            AND (cur.lease_epoch = e.ffx_lease_epoch) IS NOT TRUE
            AND ffx_read_uuid(ffx_read_text(cur.raw_fields, 'attempt_id')) IS NULL
            THEN 'ff_attempt.raw_fields.attempt_id'
        WHEN held.is_held
            AND ffx_read_text(cur.raw_fields, 'lease_id') <> ''
            AND (cur.lease_epoch = e.ffx_lease_epoch) IS NOT TRUE
            AND ffx_read_uuid(ffx_read_text(cur.raw_fields, 'lease_id')) IS NULL
            THEN 'ff_attempt.raw_fields.lease_id'
        ELSE NULL::text
    END AS corruption
FROM ff_exec_core AS e
-- The current attempt. LIMIT keeps it a lookup for each row: joined freely, a page could be read by a merge with all
-- attempts before it.
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
        c.ffx_lease_id
    FROM ff_attempt AS c
    WHERE
        c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
-- Every spelling that some program stores; NULL: nobody knows it. OFFSET 0, here and below, has it worked out once for
-- a row: else the planner writes each of these into every place that uses it.
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN e.lifecycle_phase IN ('submitted', 'active', 'suspended') THEN e.lifecycle_phase
            WHEN e.lifecycle_phase IN ('runnable', 'pending', 'eligible', 'blocked') THEN 'runnable'
            WHEN e.lifecycle_phase IN ('terminal', 'cancelled') THEN 'terminal'
            ELSE NULL::text
        END AS phase,
        CASE
            WHEN e.ownership_state IN ('unowned', 'released') THEN 'unowned'
            WHEN e.ownership_state IN ('leased', 'lease_expired_reclaimable', 'lease_revoked') THEN e.ownership_state
            ELSE NULL::text
        END AS ownership,
        CASE
            WHEN e.eligibility_state IN ('eligible_now', 'pending_claim') THEN 'eligible_now'
            WHEN e.eligibility_state IN ('not_applicable', 'cancelled') THEN 'not_applicable'
            WHEN e.eligibility_state IN (
                'not_eligible_until_time', 'blocked_by_dependencies', 'blocked_by_budget', 'blocked_by_quota',
                'blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator'
            ) THEN e.eligibility_state
            ELSE NULL::text
        END AS eligibility,
        CASE
            WHEN e.attempt_state IN ('pending_first_attempt', 'pending', 'pending_claim', 'initial') THEN 'pending_first_attempt'
            WHEN e.attempt_state IN ('running_attempt', 'running') THEN 'running_attempt'
            WHEN e.attempt_state IN ('attempt_terminal', 'cancelled', 'terminal_failed') THEN 'attempt_terminal'
            WHEN e.attempt_state IN (
                'none', 'attempt_interrupted', 'pending_retry_attempt', 'pending_replay_attempt'
            ) THEN e.attempt_state
            ELSE NULL::text
        END AS attempt_state,
        CASE
            WHEN e.public_state IN ('active', 'running', 'claimed') THEN 'active'
            WHEN e.public_state IN (
                'waiting', 'delayed', 'rate_limited', 'waiting_children', 'suspended', 'resumable', 'completed',
                'failed', 'cancelled', 'expired', 'skipped'
            ) THEN e.public_state
            ELSE NULL::text
        END AS stored_state,
        CASE
            WHEN coalesce(e.blocking_reason, '') IN ('', 'none') THEN 'none'
            WHEN e.blocking_reason NOT IN (
                'waiting_for_worker', 'waiting_for_retry_backoff', 'waiting_for_resume_delay', 'waiting_for_delay',
                'waiting_for_signal', 'waiting_for_approval', 'waiting_for_callback', 'waiting_for_tool_result',
                'waiting_for_children', 'waiting_for_budget', 'waiting_for_quota', 'waiting_for_capable_worker',
                'waiting_for_locality_match', 'paused_by_operator', 'paused_by_policy', 'paused_by_flow_cancel'
            ) THEN NULL
            WHEN e.lifecycle_phase IN ('terminal', 'cancelled') THEN 'none'
            ELSE e.blocking_reason::text
        END AS blocking_reason
    OFFSET 0
) AS n
-- How it ended: the first place that answers.
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN e.lifecycle_phase = 'cancelled' THEN 'cancelled'
        WHEN n.phase <> 'terminal' THEN 'none'
        WHEN n.phase IS NULL THEN NULL
        ELSE coalesce(
            CASE
                WHEN cur.attempt_index = e.attempt_index
                    AND cur.outcome IN ('success', 'failed', 'cancelled', 'expired', 'skipped')
                    THEN cur.outcome
            END,
            CASE
                WHEN e.public_state = 'completed' THEN 'success'
                WHEN e.public_state IN ('failed', 'cancelled', 'expired', 'skipped') THEN e.public_state
            END,
            CASE
                WHEN cur.outcome = 'failure' THEN 'failed'
                WHEN cur.outcome IN ('success', 'failed', 'cancelled', 'expired', 'skipped') THEN cur.outcome
            END,
            CASE
                WHEN ffx_read_text(e.raw_fields, 'terminal_outcome') IN ('success', 'failed', 'cancelled', 'expired', 'skipped')
                    THEN ffx_read_text(e.raw_fields, 'terminal_outcome')
                WHEN e.cancellation_reason = 'suspension_timeout_cancel' THEN 'cancelled'
                WHEN ffx_read_text(e.raw_fields, 'last_failure_message')
                    IN ('attempt_timeout', 'execution_deadline', 'suspension_timeout')
                    THEN 'expired'
                WHEN ffx_read_text(e.raw_fields, 'last_failure_message') <> ''
                    OR ffx_read_text(e.raw_fields, 'failure_reason') <> ''
                    THEN 'failed'
                ELSE 'none'
            END
        )
    END AS outcome
    OFFSET 0
) AS o
-- One column holds wake-up and deadline where FlowFabric wrote it; data of this library tells them apart.
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN e.ffx_execution_deadline_ms >= 0 THEN e.ffx_execution_deadline_ms
            WHEN e.ffx_execution_deadline_ms < 0 AND e.lifecycle_phase IN ('terminal', 'cancelled')
                THEN - greatest(e.ffx_execution_deadline_ms, -9223372036854775807)
        END AS deadline_ms,
        CASE
            WHEN coalesce(e.deadline_at_ms, 0) = least(e.ffx_delay_until_ms, CASE
                WHEN e.ffx_execution_deadline_ms > 0 THEN e.ffx_execution_deadline_ms
                WHEN e.ffx_execution_deadline_ms < 0 AND e.lifecycle_phase IN ('terminal', 'cancelled')
                    THEN - greatest(e.ffx_execution_deadline_ms, -9223372036854775807)
            END) THEN e.ffx_delay_until_ms
        END AS wake_up_ms,
        n.blocking_reason = 'waiting_for_retry_backoff'
            AND ffx_read_number(e.raw_fields, 'delay_until') IS NOT NULL AS is_retry
) AS d
CROSS JOIN LATERAL (
    SELECT
        cur.lease_expires_at_ms IS NOT NULL
            AND cur.worker_instance_id IS NOT NULL
            AND e.ownership_state IN ('leased', 'lease_expired_reclaimable') AS is_held
) AS held;

COMMENT ON VIEW ffx_execution IS
    'Executions as this library''s reads give them, one row each. An interface: columns keep name, type and meaning, new ones come behind. Find one by (partition_key, execution_id), page in that order; id is computed, and a filter by it reads the table.';
COMMENT ON COLUMN ffx_execution.partition_key IS
    'Logical shard, 0 to 255, N of the id {fp:N}:<uuid>. Filter by (partition_key, execution_id): the key of the table.';
COMMENT ON COLUMN ffx_execution.execution_id IS
    'The uuid half of the id.';
COMMENT ON COLUMN ffx_execution.id IS
    'The id as the library prints it: {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_execution.flow_id IS
    'Flow that it is a member of; NULL: none. Filter by (partition_key, flow_id).';
COMMENT ON COLUMN ffx_execution.lane_id IS
    'Lane that it is claimed from.';
COMMENT ON COLUMN ffx_execution.namespace IS
    'Its namespace; empty: none.';
COMMENT ON COLUMN ffx_execution.kind IS
    'Its kind, by which workers choose a handler; empty: none.';
COMMENT ON COLUMN ffx_execution.priority IS
    'The higher is claimed first.';
COMMENT ON COLUMN ffx_execution.tags IS
    'Object of strings.';
COMMENT ON COLUMN ffx_execution.required_capabilities IS
    'What a worker must have to claim it, all of them.';
COMMENT ON COLUMN ffx_execution.state IS
    'The public state: waiting, delayed, rate_limited, waiting_children, active, suspended, resumable, completed, failed, cancelled, expired or skipped. Derived: right also where another program left the stored one behind.';
COMMENT ON COLUMN ffx_execution.outcome IS
    'How it ended: success, failed, cancelled, expired or skipped. none: it has not, or it left no trace of how, and its state is failed.';
COMMENT ON COLUMN ffx_execution.phase IS
    'submitted, runnable, active, suspended or terminal.';
COMMENT ON COLUMN ffx_execution.ownership IS
    'unowned, leased, lease_expired_reclaimable or lease_revoked.';
COMMENT ON COLUMN ffx_execution.eligibility IS
    'eligible_now, not_eligible_until_time, blocked_by_dependencies, _budget, _quota, _route, _lane_state or _operator, not_applicable.';
COMMENT ON COLUMN ffx_execution.attempt_state IS
    'none, pending_first_attempt, running_attempt, attempt_interrupted, pending_retry_attempt, pending_replay_attempt or attempt_terminal.';
COMMENT ON COLUMN ffx_execution.blocking_reason IS
    'What it waits for, as waiting_for_worker; none: nothing.';
COMMENT ON COLUMN ffx_execution.blocking_detail IS
    'More about that; NULL: nothing is said.';
COMMENT ON COLUMN ffx_execution.cancellation_reason IS
    'Why it was cancelled; NULL: it was not.';
COMMENT ON COLUMN ffx_execution.cancelled_by IS
    'On whose behalf; NULL: it was not.';
COMMENT ON COLUMN ffx_execution.failure_reason IS
    'Text of the failure that ended it; NULL: none. That of a retried failure stands in ffx_attempt.';
COMMENT ON COLUMN ffx_execution.failure_category IS
    'Category of that failure, which retries are decided by; NULL: none, or not written by this library.';
COMMENT ON COLUMN ffx_execution.created_at IS
    'When it was created.';
COMMENT ON COLUMN ffx_execution.started_at IS
    'Its first claim; NULL: none yet.';
COMMENT ON COLUMN ffx_execution.ended_at IS
    'When it ended; NULL: it has not.';
COMMENT ON COLUMN ffx_execution.last_mutation_at IS
    'The last change other than a renewal.';
COMMENT ON COLUMN ffx_execution.delay_until IS
    'When a delayed one wakes up; NULL: it is not delayed.';
COMMENT ON COLUMN ffx_execution.deadline IS
    'When it expires; NULL: it has no deadline.';
COMMENT ON COLUMN ffx_execution.attempt IS
    'Index of the current attempt, from 0; NULL: none yet.';
COMMENT ON COLUMN ffx_execution.attempt_id IS
    'Id of the current attempt; NULL: none, or another program kept none.';
COMMENT ON COLUMN ffx_execution.worker_id IS
    'Logical worker of the current attempt, also after its end.';
COMMENT ON COLUMN ffx_execution.worker_instance_id IS
    'Process of the current attempt, also after its end.';
COMMENT ON COLUMN ffx_execution.lease_id IS
    'Id of the lease; NULL: nobody holds one, or another program kept none.';
COMMENT ON COLUMN ffx_execution.lease_epoch IS
    'Fencing token of the lease; NULL: nobody holds one.';
COMMENT ON COLUMN ffx_execution.lease_expires_at IS
    'When the lease runs out unless it is renewed; past: it ran out and was not yet given back. NULL: nobody holds one.';
COMMENT ON COLUMN ffx_execution.waitpoint_id IS
    'What a suspended one waits for; NULL: nothing.';
COMMENT ON COLUMN ffx_execution.attempts IS
    'Attempts made so far.';
COMMENT ON COLUMN ffx_execution.retries IS
    'Retries scheduled so far.';
COMMENT ON COLUMN ffx_execution.leases_lost IS
    'Leases that ran out.';
COMMENT ON COLUMN ffx_execution.budget_ids IS
    'Budgets that have to admit it; NULL: none.';
COMMENT ON COLUMN ffx_execution.quota_policy_id IS
    'Quota policy that has to admit it; NULL: none.';
COMMENT ON COLUMN ffx_execution.corruption IS
    'Column with a value that nobody knows, for which the library''s reads refuse the row; NULL: none.';

-- migrate:down

DROP VIEW ffx_execution;

DROP FUNCTION ffx_read_uuid(text);

DROP FUNCTION ffx_read_number(jsonb, text);

DROP FUNCTION ffx_read_text(jsonb, text);

DROP FUNCTION ffx_read_instant(bigint);
