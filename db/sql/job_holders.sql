-- name: TakeJobs :many
-- TakeJobs extends holder's hold on jobs by hold_ms, takes free jobs, and returns when each of the given jobs is next
-- due. With a hold_ms of 0 no job is taken, and nothing is written. ours: holder has the job, or the job is free but
-- the row is locked, so no process can take the job. due_at_ms: the instant of the first due item, past or future; the
-- last possible instant if there is none, or if no index can find one. Every row has the given lanes with entries in
-- the queue. Held jobs also store their last success and failure, of -1 or more milliseconds ago; -1: nothing new.
--
-- Passages: job_due.
-- Used by: upkeep.TakeJobs.
-- Locks: jobs skips (FOR UPDATE, then the UPDATE; new rows). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
asked AS (
    -- The jobs the process does.
    SELECT
        unnest(@names::text[]) AS name,
        nullif(unnest(@succeeded_ago_ms::bigint[]), -1) AS succeeded_ago_ms,
        nullif(unnest(@failed_ago_ms::bigint[]), -1) AS failed_ago_ms,
        nullif(unnest(@errors::text[]), '') AS error
),
free AS (
    -- The jobs the process holds, and free ones.
    SELECT j.name
    FROM ffx_job AS j
    WHERE
        @hold_ms::bigint > 0
        AND j.name = ANY (@names::text[])
        AND (
            j.holder = @holder::text
            OR j.held_until_ms <= (SELECT now_ms FROM clock)
        )
    ORDER BY j.name
    FOR UPDATE SKIP LOCKED
),
kept AS (
    -- The rows, updated.
    UPDATE ffx_job AS j
    SET
        holder = @holder::text,
        held_until_ms = (SELECT now_ms FROM clock) + @hold_ms::bigint,
        succeeded_at_ms = coalesce((SELECT now_ms FROM clock) - a.succeeded_ago_ms, j.succeeded_at_ms),
        failed_at_ms = coalesce((SELECT now_ms FROM clock) - a.failed_ago_ms, j.failed_at_ms),
        error = coalesce(a.error, j.error)
    FROM free AS f
    JOIN asked AS a ON a.name = f.name
    WHERE j.name = f.name
    RETURNING j.name
),
first AS (
    -- Jobs without any holder so far.
    INSERT INTO ffx_job (name, holder, held_until_ms)
    SELECT
        a.name,
        @holder::text,
        (SELECT now_ms FROM clock) + @hold_ms::bigint
    FROM asked AS a
    WHERE
        @hold_ms::bigint > 0
        AND NOT EXISTS (
            SELECT
            FROM ffx_job AS j
            WHERE j.name = a.name
        )
    ON CONFLICT (name) DO NOTHING
    RETURNING name
)
SELECT
    a.name::text AS name,
    (
        EXISTS (
            SELECT
            FROM kept AS k
            WHERE k.name = a.name
        )
        OR EXISTS (
            SELECT
            FROM first AS n
            WHERE n.name = a.name
        )
        OR NOT EXISTS (
            SELECT
            FROM ffx_job AS j
            WHERE
                j.name = a.name
                AND j.holder <> @holder::text
                AND j.held_until_ms > (SELECT now_ms FROM clock)
        )
    )::boolean AS ours,
    coalesce((
        SELECT j.held_until_ms
        FROM ffx_job AS j
        WHERE j.name = a.name
    ), 0)::bigint AS held_until_ms,
    coalesce(d.due_at_ms, 9223372036854775807)::bigint AS due_at_ms,
    (SELECT now_ms FROM clock)::bigint AS now_ms,
    coalesce((
        SELECT array_agg(l.lane_id)
        FROM unnest(@lane_ids::text[]) AS l (lane_id)
        WHERE EXISTS (
            SELECT
            FROM ffx_ready AS q
            WHERE q.lane_id = l.lane_id
        )
    ), '{}')::text[] AS queued_lanes
FROM asked AS a
CROSS JOIN LATERAL (
    -- When the job a.name is next due: the instant of the first due item, found by the first entry of an index; 0 if any
    -- item makes the job due. Null: there is no item, or no index can find one. Each process plans the expression anew each
    -- time.
    SELECT
        CASE a.name
            WHEN 'expire_leases' THEN (SELECT w.due_at_ms FROM ffx_lease_timer AS w ORDER BY w.due_at_ms LIMIT 1)
            WHEN 'promote_delayed' THEN (
                SELECT e.ffx_delay_until_ms
                FROM ff_exec_core AS e
                WHERE e.ffx_delay_until_ms IS NOT NULL
                ORDER BY e.ffx_delay_until_ms
                LIMIT 1
            )
            WHEN 'expire_attempts' THEN (
                SELECT t.ffx_timeout_at_ms
                FROM ff_attempt AS t
                WHERE t.ffx_timeout_at_ms IS NOT NULL
                ORDER BY t.ffx_timeout_at_ms
                LIMIT 1
            )
            WHEN 'expire_deadlines' THEN least(
                (
                    SELECT e.ffx_execution_deadline_ms
                    FROM ff_exec_core AS e
                    WHERE e.ffx_execution_deadline_ms > 0
                    ORDER BY e.ffx_execution_deadline_ms
                    LIMIT 1
                ),
                (
                    SELECT e.deadline_at_ms
                    FROM ff_exec_core AS e
                    WHERE
                        e.deadline_at_ms IS NOT NULL
                        AND e.ffx_execution_deadline_ms IS NULL
                    ORDER BY e.deadline_at_ms
                    LIMIT 1
                )
            )
            WHEN 'expire_waits' THEN (
                SELECT s.timeout_at_ms
                FROM ff_suspension_current AS s
                WHERE s.timeout_at_ms IS NOT NULL
                ORDER BY s.timeout_at_ms
                LIMIT 1
            )
            WHEN 'run_schedules' THEN least(
                (SELECT s.next_ms FROM ffx_schedule AS s WHERE s.next_ms IS NOT NULL ORDER BY s.next_ms LIMIT 1),
                -- A clock was ahead, by more than a minute: RunSchedules recalls the schedules written under this clock.
                (
                    SELECT 0 FROM ffx_schedule AS s
                    WHERE greatest(s.last_at_ms, s.changed_at_ms) > (SELECT c.now_ms FROM clock AS c) + 60000
                    ORDER BY greatest(s.last_at_ms, s.changed_at_ms) DESC LIMIT 1
                )
            )
            WHEN 'reset_budgets' THEN (SELECT b.next_reset_at_ms FROM ff_budget_policy AS b WHERE b.next_reset_at_ms IS NOT NULL ORDER BY 1 LIMIT 1)
            WHEN 'prune_usage_keys' THEN (SELECT d.expires_at_ms FROM ff_budget_usage_dedup AS d ORDER BY d.expires_at_ms LIMIT 1)
            WHEN 'release_reservations' THEN (SELECT r.expires_at_ms FROM ffx_budget_reservation AS r ORDER BY r.expires_at_ms LIMIT 1)
            WHEN 'cancel_over_budget' THEN (SELECT b.due_at_ms FROM ffx_budget_admission AS b ORDER BY b.due_at_ms LIMIT 1)
            WHEN 'admit_waiting' THEN (SELECT 0 FROM ffx_waiting AS w ORDER BY w.gate_id LIMIT 1)
            WHEN 'resume_callers' THEN (SELECT 0 FROM ffx_call_end AS c ORDER BY c.id LIMIT 1)
            WHEN 'advance_sequences' THEN (SELECT 0 FROM ffx_sequence_end AS c ORDER BY c.id LIMIT 1)
            WHEN 'expire_waitpoints' THEN (
                SELECT w.expires_at_ms
                FROM ff_waitpoint_pending AS w
                WHERE
                    w.expires_at_ms IS NOT NULL
                    AND w.state = 'pending'
                ORDER BY w.expires_at_ms
                LIMIT 1
            )
            WHEN 'prune_creation_keys' THEN (SELECT k.expires_at_ms FROM ffx_create_dedup AS k ORDER BY k.expires_at_ms LIMIT 1)
            WHEN 'expire_grants' THEN (SELECT g.expires_at_ms FROM ff_claim_grant AS g ORDER BY g.expires_at_ms LIMIT 1)
            WHEN 'unblock_routes' THEN (
                SELECT 0
                FROM ffx_blocked AS b
                WHERE b.eligibility_state = 'blocked_by_route'
                ORDER BY
                    b.lane_id,
                    b.blocked_at_ms
                LIMIT 1
            )
            WHEN 'retain' THEN least(
                -- Half the range of an instant means for ever, and leaves space for an addition.
                (
                    SELECT c.committed_at_ms + least(
                        @look_after_ms::bigint,
                        (SELECT min(l.retention_ms) FROM ffx_lane_retention AS l),
                        (SELECT min(p.period_ms) FROM ffx_retention_period AS p),
                        4611686018427387903
                    )
                    FROM ff_completion_event AS c
                    WHERE c.event_id > coalesce((SELECT r.event_id FROM ffx_retention AS r WHERE r.source = 'ends'), 0)
                    ORDER BY c.event_id
                    LIMIT 1
                ),
                (
                    SELECT t.due_at_ms
                    FROM ffx_retention_timer AS t
                    WHERE t.subject = 'execution'
                    ORDER BY t.due_at_ms
                    LIMIT 1
                )
            )
            WHEN 'cancel_flows' THEN (
                SELECT coalesce(b.grace_until_ms, b.requested_at_ms)
                FROM ff_cancel_backlog AS b
                WHERE b.status = 'pending'
                ORDER BY coalesce(b.grace_until_ms, b.requested_at_ms)
                LIMIT 1
            )
            WHEN 'cancel_siblings' THEN (
                SELECT 0
                FROM ff_pending_cancel_groups AS p
                ORDER BY p.enqueued_at_ms
                LIMIT 1
            )
            WHEN 'dispatch_completions' THEN (
                SELECT 0
                FROM ff_completion_event AS c
                WHERE c.dispatched_at_ms IS NULL
                ORDER BY c.event_id
                LIMIT 1
            )
        END AS due_at_ms
) AS d
ORDER BY a.name;

-- name: ReturnJobs :exec
-- ReturnJobs releases holder's jobs, so other processes can take the jobs at once.
--
-- Used by: upkeep.ReturnJobs.
-- Locks: jobs skips (FOR UPDATE, then the UPDATE).
UPDATE ffx_job AS j
SET held_until_ms = 0
FROM (
    SELECT h.name
    FROM ffx_job AS h
    WHERE h.holder = @holder::text
    ORDER BY h.name
    FOR UPDATE SKIP LOCKED
) AS f
WHERE j.name = f.name;

-- name: ListQueuedAmong :many
-- ListQueuedAmong returns the given lanes with entries in the queue.
--
-- Used by: engine.QueuedLanes.
-- Locks: none. Spans partitions.
SELECT l.lane_id::text AS lane_id
FROM unnest(@lane_ids::text[]) AS l (lane_id)
WHERE EXISTS (
    SELECT
    FROM ffx_ready AS q
    WHERE q.lane_id = l.lane_id
)
ORDER BY l.lane_id;
