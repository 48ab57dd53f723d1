-- name: LookAtLeases :many
-- LookAtLeases looks at about max_items leases that were to run out by now, and returns those that did, at
-- most batch_size, oldest first; every row says how many it looked at, and if none has run out that is all
-- the only row says. What was given back, or has no execution any more, it forgets; what was renewed it watches until the next one runs
-- out; what has run out stays due as long as its attempt has the lease. lost_too_often forecasts that
-- the loss ends the execution, so that the lock of its flow can be taken before any row.
--
-- A lease that is taken while this statement runs has a row of its own in the watch.
--
-- Used by: engine.ExpireLeases.
-- Locks: rows of the watch FOR UPDATE SKIP LOCKED, and deletes them. Spans partitions.
WITH clock AS MATERIALIZED (
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
due AS (
    SELECT
        d.watch_row_id,
        sum(d.items) OVER (ORDER BY d.due_at_ms, d.watch_id) - d.items AS earlier
    FROM (
        SELECT
            w.ctid::tid AS watch_row_id,
            w.due_at_ms,
            w.watch_id,
            cardinality(w.execution_ids) AS items
        FROM ffx_lease_watch AS w
        WHERE w.due_at_ms <= (SELECT now_ms FROM clock)
        ORDER BY
            w.due_at_ms,
            w.watch_id
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS d
),
taken AS (
    DELETE FROM ffx_lease_watch AS w
    USING due AS d
    WHERE
        w.ctid = d.watch_row_id
        AND d.earlier < @max_items::bigint
    RETURNING
        w.partition_keys,
        w.execution_ids,
        w.attempt_indexes
),
items AS (
    SELECT
        unnest(t.partition_keys) AS partition_key,
        unnest(t.execution_ids) AS execution_id,
        unnest(t.attempt_indexes) AS attempt_index
    FROM taken AS t
),
leased AS (
    SELECT DISTINCT
        a.partition_key,
        a.execution_id,
        a.attempt_index,
        a.lease_expires_at_ms
    FROM items AS i
    -- One by one: where the planner expects no lease at all it would read every attempt.
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            t.attempt_index,
            t.lease_expires_at_ms
        FROM ff_attempt AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.attempt_index = i.attempt_index
        LIMIT 1
    ) AS a
    WHERE a.lease_expires_at_ms IS NOT NULL
),
held AS (
    SELECT
        l.partition_key,
        l.execution_id,
        l.attempt_index,
        l.lease_expires_at_ms,
        l.lease_expires_at_ms <= (SELECT now_ms FROM clock) AS expired,
        e.flow_id,
        (e.lifecycle_phase = 'active' AND greatest(e.lease_reclaim_count, 0) + 1 > least(
            CASE
                WHEN jsonb_typeof(e.policy #> '{timeout_policy,max_reclaim_count}') = 'number'
                    THEN (e.policy #>> '{timeout_policy,max_reclaim_count}')::numeric
            END,
            CASE
                WHEN jsonb_typeof(e.policy -> 'max_reclaim_count') = 'number'
                    THEN (e.policy ->> 'max_reclaim_count')::numeric
            END,
            @default_cap::integer
        ))::boolean AS lost_too_often
    FROM leased AS l
    CROSS JOIN LATERAL (
        SELECT
            c.flow_id,
            c.lifecycle_phase,
            c.lease_reclaim_count,
            c.policy
        FROM ff_exec_core AS c
        WHERE
            c.partition_key = l.partition_key
            AND c.execution_id = l.execution_id
        LIMIT 1
    ) AS e
),
watched AS (
    INSERT INTO ffx_lease_watch (
        due_at_ms,
        watch_id,
        partition_keys,
        execution_ids,
        attempt_indexes
    )
    SELECT
        min(h.lease_expires_at_ms),
        gen_random_uuid(),
        array_agg(h.partition_key),
        array_agg(h.execution_id),
        array_agg(h.attempt_index)
    FROM held AS h
    GROUP BY h.expired
)
SELECT
    n.looked_at,
    coalesce(x.partition_key, 0)::smallint AS partition_key,
    x.execution_id,
    coalesce(x.attempt_index, 0)::integer AS attempt_index,
    x.flow_id,
    coalesce(x.lost_too_often, false)::boolean AS lost_too_often
FROM (SELECT count(*) AS looked_at FROM items) AS n
LEFT JOIN (
    SELECT
        h.partition_key,
        h.execution_id,
        h.attempt_index,
        h.flow_id,
        h.lost_too_often
    FROM held AS h
    WHERE h.expired
    ORDER BY
        h.lease_expires_at_ms,
        h.execution_id
    LIMIT @batch_size::integer
) AS x ON true;

-- name: ForgetWatches :exec
-- ForgetWatches deletes rows of the watch whose leases are all over. A row that somebody has looked at
-- meanwhile is gone, and what was left of it stands in another.
--
-- Used by: engine.ExpireLeases.
-- Locks: the rows (DELETE). Each process forgets its own, and a look waits for nobody.
DELETE FROM ffx_lease_watch AS w
USING (
    SELECT
        unnest(@due_at_ms::bigint[]) AS due_at_ms,
        unnest(@watch_ids::uuid[]) AS watch_id
    LIMIT cardinality(@due_at_ms::bigint[])
) AS i
WHERE
    w.due_at_ms = i.due_at_ms
    AND w.watch_id = i.watch_id;

-- name: TakeExpiredLeases :many
-- TakeExpiredLeases locks the given attempts and their executions where the lease is still due and
-- nobody else holds the rows; the others wait for the next scan.
--
-- Used by: engine.ExpireLeases.
-- Locks: execution rows FOR NO KEY UPDATE SKIP LOCKED (L1) and attempt rows FOR UPDATE SKIP LOCKED (L2):
-- it decides from nothing but their own columns.
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.lifecycle_phase,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    (greatest(e.lease_reclaim_count, 0) + 1 > least(
        CASE
            WHEN jsonb_typeof(e.policy #> '{timeout_policy,max_reclaim_count}') = 'number'
                THEN (e.policy #>> '{timeout_policy,max_reclaim_count}')::numeric
        END,
        CASE
            WHEN jsonb_typeof(e.policy -> 'max_reclaim_count') = 'number'
                THEN (e.policy ->> 'max_reclaim_count')::numeric
        END,
        @default_cap::integer
    ))::boolean AS lost_too_often,
    a.attempt_index,
    a.lease_epoch,
    coalesce(a.worker_instance_id, '')::text AS worker_instance_id,
    -- Another program keeps the id of its lease in raw_fields; ours is in the column.
    coalesce(CASE
        WHEN a.lease_epoch = e.ffx_lease_epoch THEN a.ffx_lease_id::text
        ELSE a.raw_fields ->> 'lease_id'
    END, '')::text AS lease_id
FROM ff_exec_core AS e
JOIN ff_attempt AS a ON a.partition_key = e.partition_key AND a.execution_id = e.execution_id
WHERE
    (e.partition_key, e.execution_id, a.attempt_index) IN (
        SELECT
            unnest(@partition_keys::smallint[]),
            unnest(@execution_ids::uuid[]),
            unnest(@attempt_indexes::integer[])
        LIMIT cardinality(@execution_ids::uuid[])
    )
    AND (a.lease_expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS TRUE
FOR NO KEY UPDATE OF e SKIP LOCKED
FOR UPDATE OF a SKIP LOCKED;

-- name: LockCurrentAttempts :many
-- LockCurrentAttempts locks the current attempt of each given execution: the newest up to its pointer.
-- An execution without attempts has no row.
--
-- Used by: engine.ExpireLeases, engine.ExpireDeadlines, after their executions are locked.
-- Locks: attempt rows FOR UPDATE in array order (L2): the caller sorts by (partition_key, execution_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    a.execution_id,
    a.attempt_index,
    a.lease_epoch,
    a.terminal_at_ms,
    a.lease_expires_at_ms,
    coalesce(a.worker_instance_id, '')::text AS worker_instance_id,
    coalesce(a.ffx_lease_id::text, '')::text AS lease_id
FROM input AS i
JOIN ff_exec_core AS e ON e.partition_key = i.partition_key AND e.execution_id = i.execution_id
CROSS JOIN LATERAL (
    SELECT
        t.execution_id,
        t.attempt_index,
        t.lease_epoch,
        t.terminal_at_ms,
        t.lease_expires_at_ms,
        t.worker_instance_id,
        t.ffx_lease_id
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index <= e.attempt_index
    ORDER BY t.attempt_index DESC
    LIMIT 1
    FOR UPDATE
) AS a;

-- name: ReleaseExpiredLeases :many
-- ReleaseExpiredLeases gives executions whose worker fell silent back to their lanes, under a raised
-- epoch: the same attempt goes on with the next claim. Returns the lanes that have work now.
--
-- Used by: engine.ExpireLeases.
-- Locks: rows already locked by TakeExpiredLeases.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@raised_epochs::bigint[]) AS raised_epoch,
        unnest(@lease_ids::text[]) AS lease_id,
        unnest(@worker_instance_ids::text[]) AS worker_instance_id
    LIMIT cardinality(@execution_ids::uuid[])
),
released AS (
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'runnable',
        ownership_state = 'unowned',
        eligibility_state = 'eligible_now',
        public_state = 'waiting',
        attempt_state = 'attempt_interrupted',
        blocking_reason = 'waiting_for_worker',
        attempt_index = i.attempt_index,
        lease_reclaim_count = greatest(e.lease_reclaim_count, 0) + 1,
        ffx_gate_id = NULL,
        ffx_lease_epoch = i.raised_epoch,
        ffx_last_mutation_at_ms = @now_ms::bigint
    FROM input AS i
    WHERE
        e.partition_key = i.partition_key
        AND e.execution_id = i.execution_id
        AND e.lifecycle_phase = 'active'
    RETURNING
        e.partition_key,
        e.execution_id,
        e.lane_id,
        i.attempt_index,
        i.raised_epoch,
        i.lease_id,
        i.worker_instance_id,
        e.ffx_namespace,
        e.ffx_instance_tag
),
released_attempts AS (
    UPDATE ff_attempt AS a
    SET
        outcome = 'lease_expired_reclaimable',
        lease_expires_at_ms = NULL,
        ffx_timeout_at_ms = NULL,
        worker_id = NULL,
        worker_instance_id = NULL,
        terminal_at_ms = NULL,
        lease_epoch = r.raised_epoch
    FROM released AS r
    WHERE
        a.partition_key = r.partition_key
        AND a.execution_id = r.execution_id
        AND a.attempt_index = r.attempt_index
),
lease_events AS (
    INSERT INTO ff_lease_event (
        execution_id,
        lease_id,
        event_type,
        occurred_at_ms,
        partition_key,
        namespace,
        instance_tag,
        ffx_worker_instance_id
    )
    SELECT
        r.execution_id::text,
        nullif(r.lease_id, ''),
        'expired',
        @now_ms::bigint,
        r.partition_key,
        r.ffx_namespace,
        r.ffx_instance_tag,
        nullif(r.worker_instance_id, '')
    FROM released AS r
)
SELECT DISTINCT r.lane_id
FROM released AS r;

-- name: FenceStrayLeases :exec
-- FenceStrayLeases clears leases that ran out on attempts nobody works on any more: the execution is
-- not active, or goes on with a later attempt. The outcome stays; no event is written.
--
-- Used by: engine.ExpireLeases.
-- Locks: rows already locked by TakeExpiredLeases.
UPDATE ff_attempt AS a
SET
    lease_expires_at_ms = NULL,
    ffx_timeout_at_ms = NULL,
    worker_instance_id = NULL,
    lease_epoch = a.lease_epoch + 1
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    a.partition_key = i.partition_key
    AND a.execution_id = i.execution_id
    AND a.attempt_index = i.attempt_index;

-- name: ScanOverdue :many
-- ScanOverdue finds executions whose execution deadline has passed: in the column of this library, or,
-- where that was never written, in deadline_at_ms. Another program keeps the wake-up of a delay there too,
-- unless it is that of a retry, which it keeps in raw_fields. finished: another program ended it.
--
-- Used by: engine.ExpireDeadlines.
-- Locks: none. Spans partitions.
(
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        (e.lifecycle_phase IN ('terminal', 'cancelled'))::boolean AS finished
    FROM ff_exec_core AS e
    WHERE
        e.ffx_execution_deadline_ms > 0
        AND e.ffx_execution_deadline_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ORDER BY e.ffx_execution_deadline_ms
    LIMIT @batch_size::integer
)
UNION ALL
(
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        (e.lifecycle_phase IN ('terminal', 'cancelled'))::boolean AS finished
    FROM ff_exec_core AS e
    WHERE
        e.ffx_execution_deadline_ms IS NULL
        AND e.deadline_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
        AND (
            e.lifecycle_phase IN ('terminal', 'cancelled')
            OR e.eligibility_state <> 'not_eligible_until_time'
            OR e.blocking_reason = 'waiting_for_retry_backoff' AND e.raw_fields ->> 'delay_until' ~ '^[0-9]+$'
        )
    ORDER BY e.deadline_at_ms
    LIMIT @batch_size::integer
)
LIMIT @batch_size::integer;

-- name: SettleDeadlines :exec
-- SettleDeadlines negates the deadlines of executions that another program ended, so that no scan meets
-- them again. This library's own ends do it themselves.
--
-- Used by: engine.ExpireDeadlines.
-- Locks: execution rows (UPDATE) in array order: the caller sorts by (partition_key, execution_id).
UPDATE ff_exec_core AS e
SET ffx_execution_deadline_ms = -abs(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms))
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    e.partition_key = i.partition_key
    AND e.execution_id = i.execution_id
    AND e.lifecycle_phase IN ('terminal', 'cancelled');

-- name: TakeOverdue :many
-- TakeOverdue locks the given executions where they are still unfinished, due and not held by anybody.
--
-- Used by: engine.ExpireDeadlines.
-- Locks: execution rows FOR NO KEY UPDATE SKIP LOCKED in array order (L1): the caller sorts by (partition_key,
-- execution_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    e.lifecycle_phase
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        t.ffx_lease_epoch,
        t.lifecycle_phase
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND (
            t.ffx_execution_deadline_ms > 0 AND t.ffx_execution_deadline_ms <= ffx_now_ms(sqlc.narg(now_ms))
            OR t.ffx_execution_deadline_ms IS NULL
            AND t.deadline_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
            AND (
                t.eligibility_state <> 'not_eligible_until_time'
                OR t.blocking_reason = 'waiting_for_retry_backoff' AND t.raw_fields ->> 'delay_until' ~ '^[0-9]+$'
            )
        ) IS TRUE
        AND t.lifecycle_phase NOT IN ('terminal', 'cancelled')
    FOR NO KEY UPDATE SKIP LOCKED
) AS e;

-- name: PromoteDelayed :many
-- PromoteDelayed makes delayed executions claimable whose time has come, and returns one row per
-- execution with its lane, and whether it was promoted: of one that is not delayed any more it only
-- forgets the delay. An execution whose deadline has passed too is left to the deadline job; one that
-- names a budget or quota goes to its gate.
--
-- Used by: engine.PromoteDelayed.
-- Locks: execution rows FOR NO KEY UPDATE SKIP LOCKED, then the guarded UPDATE of the same rows.
-- Spans partitions.
WITH due AS (
    SELECT
        c.ctid::tid AS row_id,
        c.partition_key,
        c.execution_id,
        (c.lifecycle_phase = 'runnable' AND c.eligibility_state = 'not_eligible_until_time') AS delayed
    FROM ff_exec_core AS c
    WHERE
        c.ffx_delay_until_ms <= ffx_now_ms(sqlc.narg(now_ms))
        AND (
            c.lifecycle_phase <> 'runnable'
            OR c.eligibility_state <> 'not_eligible_until_time'
            OR (
                c.deadline_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
                AND (
                    coalesce(c.ffx_execution_deadline_ms, 0) <= 0
                    OR c.ffx_execution_deadline_ms > ffx_now_ms(sqlc.narg(now_ms))
                )
            )
        )
    ORDER BY c.ffx_delay_until_ms
    LIMIT @batch_size::integer
    FOR NO KEY UPDATE SKIP LOCKED
),
forgotten AS (
    UPDATE ff_exec_core AS e
    SET ffx_delay_until_ms = NULL
    FROM due AS d
    WHERE
        e.ctid = d.row_id
        AND e.partition_key = d.partition_key
        AND e.execution_id = d.execution_id
        AND NOT d.delayed
    RETURNING e.lane_id
),
promoted AS (
    UPDATE ff_exec_core AS e
    SET
        eligibility_state = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_quota_policy_id IS NULL) THEN 'eligible_now'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
            ELSE 'blocked_by_quota'
        END,
        public_state = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_quota_policy_id IS NULL) THEN 'waiting'
            ELSE 'rate_limited'
        END,
        blocking_reason = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_quota_policy_id IS NULL) THEN 'waiting_for_worker'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
            ELSE 'waiting_for_quota'
        END,
        ffx_gate_id = CASE
            WHEN e.ffx_admitted IS NOT TRUE THEN coalesce(e.ffx_budget_ids[1], e.ffx_quota_policy_id)
        END,
        deadline_at_ms = CASE
            WHEN e.ffx_execution_deadline_ms > 0 THEN e.ffx_execution_deadline_ms
        END,
        ffx_delay_until_ms = NULL,
        ffx_last_mutation_at_ms = ffx_now_ms(sqlc.narg(now_ms))
    FROM due AS d
    WHERE
        e.ctid = d.row_id
        AND e.partition_key = d.partition_key
        AND e.execution_id = d.execution_id
        AND d.delayed
    RETURNING e.lane_id
)
SELECT
    lane_id,
    true AS promoted
FROM promoted
UNION ALL
SELECT
    lane_id,
    false AS promoted
FROM forgotten;

-- name: ScanTimedOut :many
-- ScanTimedOut finds attempts that have taken longer than their timeout. over: another program has taken
-- the lease away, so the timeout means nothing any more.
--
-- Used by: engine.ExpireAttempts.
-- Locks: none. Spans partitions.
SELECT
    a.partition_key,
    a.execution_id,
    a.attempt_index,
    a.ffx_timeout_at_ms::bigint AS timeout_at_ms,
    e.flow_id,
    e.policy,
    coalesce(e.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(e.raw_fields ->> 'retry_count', '')::text AS raw_retry_count,
    ((
        e.lifecycle_phase = 'active'
        AND e.attempt_index = a.attempt_index
        AND a.lease_epoch = e.ffx_lease_epoch
        AND a.lease_expires_at_ms IS NOT NULL
    ) IS NOT TRUE)::boolean AS over
FROM ff_attempt AS a
CROSS JOIN LATERAL (
    -- One by one, whatever the planner expects.
    SELECT
        t.flow_id,
        t.policy,
        t.ffx_retry_count,
        t.raw_fields,
        t.lifecycle_phase,
        t.attempt_index,
        t.ffx_lease_epoch
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = a.partition_key
        AND t.execution_id = a.execution_id
    LIMIT 1
) AS e
WHERE a.ffx_timeout_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
ORDER BY a.ffx_timeout_at_ms
LIMIT @batch_size::integer;

-- name: ForgetTimeouts :exec
-- ForgetTimeouts clears timeouts of attempts whose lease another program took away, so that no scan meets
-- them again. This library clears them itself. An attempt that was leased again has another timeout.
--
-- Used by: engine.ExpireAttempts.
-- Locks: attempt rows (UPDATE), in array order: the caller sorts by (partition_key, execution_id,
-- attempt_index). Nothing else.
UPDATE ff_attempt AS a
SET ffx_timeout_at_ms = NULL
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@timeouts_at_ms::bigint[]) AS timeout_at_ms
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    a.partition_key = i.partition_key
    AND a.execution_id = i.execution_id
    AND a.attempt_index = i.attempt_index
    AND (a.ffx_timeout_at_ms = i.timeout_at_ms) IS TRUE;

-- name: TakeTimedOut :many
-- TakeTimedOut locks the given attempts and their executions where the attempt is still running, ours,
-- overdue, and not held by anybody.
--
-- Used by: engine.ExpireAttempts.
-- Locks: execution rows FOR NO KEY UPDATE SKIP LOCKED (L1) and attempt rows FOR UPDATE SKIP LOCKED (L2):
-- it decides from nothing but their own columns.
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.policy,
    coalesce(e.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(e.raw_fields ->> 'retry_count', '')::text AS raw_retry_count,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    a.attempt_index,
    coalesce(a.worker_instance_id, '')::text AS worker_instance_id,
    coalesce(a.ffx_lease_id::text, '')::text AS lease_id
FROM ff_exec_core AS e
JOIN ff_attempt AS a ON a.partition_key = e.partition_key AND a.execution_id = e.execution_id
WHERE
    (e.partition_key, e.execution_id, a.attempt_index) IN (
        SELECT
            unnest(@partition_keys::smallint[]),
            unnest(@execution_ids::uuid[]),
            unnest(@attempt_indexes::integer[])
        LIMIT cardinality(@execution_ids::uuid[])
    )
    AND e.lifecycle_phase = 'active'
    AND (e.attempt_index = a.attempt_index) IS TRUE
    AND (a.lease_epoch = e.ffx_lease_epoch) IS TRUE
    AND (a.lease_expires_at_ms IS NOT NULL) IS TRUE
    AND (a.ffx_timeout_at_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS TRUE
FOR NO KEY UPDATE OF e SKIP LOCKED
FOR UPDATE OF a SKIP LOCKED;

-- name: DiscardWaiting :exec
-- DiscardWaiting removes what could still act on executions that a background job ended: their
-- suspensions, waitpoints and grants.
--
-- Used by: engine.ExpireDeadlines, engine.ExpireAttempts, engine.ExpireLeases.
-- Locks: the deleted rows (L5); the executions are locked by the caller.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
),
grants AS (
    DELETE FROM ff_claim_grant AS g
    USING input AS i
    WHERE
        g.partition_key = i.partition_key
        AND g.execution_id = i.execution_id
),
suspensions AS (
    DELETE FROM ff_suspension_current AS s
    USING input AS i
    WHERE
        s.partition_key = i.partition_key
        AND s.execution_id = i.execution_id
)
DELETE FROM ff_waitpoint_pending AS w
USING input AS i
WHERE
    w.partition_key = i.partition_key
    AND w.execution_id = i.execution_id;
