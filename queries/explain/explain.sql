-- name: GetSurroundings :one
-- GetSurroundings returns facts around an execution: the pause of its lane, its queue entry and the entries before it, its grant,
-- the session with a lock on its row, the last failed attempt, the progress, the pause or open call, and the held background
-- jobs. ahead counts up to 1,001 entries, by_priority the entries of a higher priority among these. No row: the execution does not
-- exist.
--
-- Used by: explain.Execution.
-- Locks: none.
SELECT
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms,
    -- They show whether the execution has changed since the first read.
    e.lifecycle_phase,
    e.eligibility_state,
    e.ffx_last_mutation_at_ms AS last_mutation_at_ms,
    coalesce(h.paused_at_ms, 0)::bigint AS paused_at_ms,
    coalesce(h.reason, '')::text AS pause_reason,
    coalesce(h.until_ms, 0)::bigint AS paused_until_ms,
    EXISTS (
        SELECT
        FROM ffx_ready AS r
        WHERE
            r.lane_id = e.lane_id
            AND r.rank = - e.priority::bigint
            AND r.created_at_ms = e.created_at_ms
            AND r.execution_id = e.execution_id
    ) AS queued,
    q.ahead::integer AS ahead,
    q.by_priority::integer AS by_priority,
    coalesce(b.blocked_at_ms, 0)::bigint AS blocked_at_ms,
    coalesce(g.worker_id, '')::text AS grantee,
    coalesce(g.expires_at_ms, 0)::bigint AS granted_until_ms,
    coalesce(l.pid, 0)::integer AS locked_by,
    coalesce(l.application_name, '')::text AS locked_by_name,
    coalesce(l.age_ms, -1)::bigint AS locked_for_ms,
    coalesce(l.sharers, 0)::integer AS lock_sharers,
    coalesce(f.attempt_index, -1)::integer AS failed_attempt,
    coalesce(f.reason, '')::text AS failure,
    coalesce(e.raw_fields ->> 'progress_pct', '')::text AS progress,
    coalesce(e.raw_fields ->> 'progress_message', '')::text AS progress_message,
    coalesce(substring(s.ffx_continuation_pointer FROM '^ffx_call:(.*)$'), '')::text AS call_step,
    coalesce(p.name, '')::text AS pause_step,
    -- The jobs of live processes. The table has a row for each job.
    ARRAY(SELECT j.name FROM ffx_job AS j WHERE j.held_until_ms > ffx_now_ms(sqlc.narg(now_ms)))::text[] AS held_jobs
FROM ff_exec_core AS e
LEFT JOIN ffx_pause AS h
    ON h.subject = 'lane'
    AND h.name = e.lane_id
    AND (h.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
CROSS JOIN LATERAL (
    SELECT
        count(*) AS ahead,
        count(*) FILTER (WHERE o.higher) AS by_priority
    FROM (
        SELECT t.rank < - e.priority::bigint AS higher
        FROM ffx_ready AS t
        WHERE
            e.eligibility_state = 'eligible_now'
            AND t.lane_id = e.lane_id
            AND (t.rank, t.created_at_ms, t.execution_id) < (- e.priority::bigint, e.created_at_ms, e.execution_id)
        LIMIT 1001
    ) AS o
) AS q
LEFT JOIN LATERAL (
    SELECT t.blocked_at_ms
    FROM ffx_blocked AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND e.lifecycle_phase = 'runnable'
    LIMIT 1
) AS b ON true
LEFT JOIN LATERAL (
    SELECT
        t.worker_id,
        t.expires_at_ms
    FROM ff_claim_grant AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND t.expires_at_ms > ffx_now_ms(sqlc.narg(now_ms))
    ORDER BY t.issued_at_ms DESC
    LIMIT 1
) AS g ON true
LEFT JOIN LATERAL (
    -- An open transaction with a lock on the row: xmax is its id, or the id of a set of sharers. Numbers of both kinds overlap, so a
    -- sharer is a guess. The bounds of the table's sets keep the function from an error.
    SELECT
        t.pid,
        a.application_name,
        extract(epoch FROM clock_timestamp() - a.xact_start) * 1000 AS age_ms,
        CASE WHEN t.transactionid = e.xmax THEN 0 ELSE count(*) OVER () END AS sharers
    FROM pg_catalog.pg_locks AS t
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = t.pid
    WHERE
        e.xmax::text <> '0'
        AND t.locktype = 'transactionid'
        AND t.mode = 'ExclusiveLock'
        AND t.granted
        AND (
            t.transactionid = e.xmax
            OR t.transactionid IN (
                SELECT m.xid
                FROM pg_catalog.pg_class AS c
                CROSS JOIN LATERAL pg_catalog.pg_get_multixact_members(
                    CASE WHEN mxid_age(e.xmax) BETWEEN 1 AND mxid_age(c.relminmxid) THEN e.xmax END
                ) AS m (xid, mode)
                WHERE
                    c.oid = e.tableoid
                    AND m.mode <> 'keysh'
            )
        )
    ORDER BY
        t.transactionid = e.xmax DESC,
        a.xact_start
    LIMIT 1
) AS l ON true
LEFT JOIN LATERAL (
    SELECT
        t.attempt_index,
        t.raw_fields ->> 'failure_reason' AS reason
    FROM ff_attempt AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND t.attempt_index <= e.attempt_index
        AND t.raw_fields ? 'failure_reason'
    ORDER BY t.attempt_index DESC
    LIMIT 1
) AS f ON true
LEFT JOIN ff_suspension_current AS s
    ON s.partition_key = e.partition_key
    AND s.execution_id = e.execution_id
    AND s.ffx_open_since_ms IS NOT NULL
LEFT JOIN LATERAL (
    -- The step with the end of the delay. Of many steps a thousand are examined.
    SELECT o.name
    FROM (
        SELECT
            t.name,
            t.result
        FROM ffx_step AS t
        WHERE
            t.partition_key = e.partition_key
            AND t.execution_id = e.execution_id
            AND e.eligibility_state = 'not_eligible_until_time'
            AND t.outcome = 'slept'
        LIMIT 1000
    ) AS o
    WHERE o.result = convert_to(e.ffx_delay_until_ms::text, 'UTF8')
    LIMIT 1
) AS p ON true
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: ListHindrances :many
-- ListHindrances returns the executions in front of an execution: unfinished upstreams, or failed ones of a skipped execution, and
-- unfinished called ones. It returns up to six of each relation, of at most 1,000 examined. total counts those found.
--
-- Used by: explain.Execution.
-- Locks: none. The called executions span partitions.
WITH self AS (
    -- The execution.
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        e.lifecycle_phase,
        e.eligibility_state,
        e.public_state
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = @partition_key
        AND e.execution_id = @execution_id
),
upstreams AS (
    -- Its upstreams, while some are unfinished, or after a skip.
    SELECT
        'upstream' AS relation,
        d.partition_key,
        d.upstream_eid AS execution_id
    FROM self AS e
    CROSS JOIN LATERAL (
        SELECT
            x.partition_key,
            x.upstream_eid
        FROM ff_edge AS x
        WHERE
            x.downstream_eid = e.execution_id
            AND (x.partition_key = e.partition_key OR x.partition_key IS NULL)
            AND x.flow_id = e.flow_id
            AND (e.public_state = 'skipped' OR e.eligibility_state = 'blocked_by_dependencies')
        LIMIT 1000
    ) AS d
),
called AS (
    -- The executions of its open call.
    SELECT
        'called' AS relation,
        unnest(t.called_partition_keys) AS partition_key,
        unnest(t.called_execution_ids) AS execution_id
    FROM self AS e
    JOIN ff_suspension_current AS s ON s.partition_key = e.partition_key AND s.execution_id = e.execution_id
    CROSS JOIN LATERAL (
        SELECT
            o.called_partition_keys,
            o.called_execution_ids
        FROM ffx_step AS o
        WHERE
            o.partition_key = e.partition_key
            AND o.execution_id = e.execution_id
            AND o.name = substr(s.ffx_continuation_pointer, length('ffx_call:') + 1)
            AND o.outcome = 'called'
        LIMIT 1
    ) AS t
    WHERE
        e.lifecycle_phase = 'suspended'
        AND s.ffx_open_since_ms IS NOT NULL
        AND s.ffx_continuation_pointer LIKE 'ffx_call:%'
),
awaited AS (
    -- Both, with their state. One that ended is only of interest as the cause of a skip.
    SELECT
        a.relation,
        a.partition_key,
        a.execution_id,
        x.kind,
        x.node,
        x.public_state,
        x.failure,
        count(*) FILTER (WHERE x.open) OVER (PARTITION BY a.relation) AS open,
        count(*) OVER (PARTITION BY a.relation) AS total,
        row_number() OVER (PARTITION BY a.relation ORDER BY x.open DESC, x.public_state, a.execution_id) AS nth
    FROM (
        SELECT
            u.relation,
            u.partition_key,
            u.execution_id
        FROM upstreams AS u
        UNION ALL
        SELECT
            c.relation,
            c.partition_key,
            c.execution_id
        FROM called AS c
    ) AS a
    CROSS JOIN LATERAL (
        SELECT
            coalesce(t.raw_fields ->> 'execution_kind', '') AS kind,
            coalesce(t.raw_fields ->> 'ffx_node_key', '') AS node,
            t.public_state,
            coalesce(t.raw_fields ->> 'failure_reason', t.cancellation_reason, '') AS failure,
            t.lifecycle_phase NOT IN ('terminal', 'cancelled') AS open
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = a.partition_key
            AND t.execution_id = a.execution_id
        LIMIT 1
    ) AS x
)
SELECT
    w.relation::text AS relation,
    w.partition_key::smallint AS partition_key,
    w.execution_id::uuid AS execution_id,
    w.kind::text AS kind,
    w.node::text AS node,
    w.public_state::text AS public_state,
    w.failure::text AS failure,
    w.open::bigint AS open,
    w.total::bigint AS total
FROM awaited AS w
WHERE w.nth <= 6
ORDER BY
    w.relation,
    w.nth;

-- name: ListGateFacts :many
-- ListGateFacts returns the limit in front of a waiting execution, with its rule and up to five executions that hold units, or
-- without a holder. A quota policy has a rule and no name. No row: no limit is in front. in_use counts the units of at most 1,001
-- holders.
--
-- Used by: explain.Execution.
-- Locks: none. The holders span partitions.
WITH gate AS (
    -- The key.
    SELECT
        e.ffx_gate_id AS gate_id,
        coalesce((e.ffx_limit_units)[array_position(e.ffx_limit_ids, e.ffx_gate_id)], 1) AS wanted,
        k.partition_key,
        k.namespace,
        coalesce(k.limit_name, '') AS name,
        k.key,
        k.next_at_ms,
        k.hold_until_ms,
        k.hold_since_ms,
        k.hold_by,
        coalesce(l.units, q.units) AS units,
        coalesce(l.window_ms, q.window_ms) AS window_ms
    FROM ff_exec_core AS e
    LEFT JOIN ffx_gate AS k
        ON k.partition_key = get_byte(uuid_send(e.ffx_gate_id), 0)
        AND k.gate_id = e.ffx_gate_id
    LEFT JOIN ffx_limit AS l ON l.namespace = k.namespace AND l.name = k.limit_name
    LEFT JOIN LATERAL (
        SELECT
            CASE
                WHEN t.active_concurrency_cap > 0 THEN t.active_concurrency_cap
                ELSE t.max_requests_per_window
            END AS units,
            CASE WHEN t.active_concurrency_cap > 0 THEN NULL ELSE t.requests_per_window_seconds * 1000 END AS window_ms
        FROM ff_quota_policy AS t
        WHERE
            t.partition_key = e.ffx_quota_partition
            AND e.ffx_quota_policy_id = e.ffx_gate_id
            AND t.quota_policy_id = e.ffx_quota_policy_id::text
        LIMIT 1
    ) AS q ON true
    WHERE
        e.partition_key = @partition_key
        AND e.execution_id = @execution_id
        AND e.eligibility_state = 'blocked_by_quota'
),
holders AS (
    -- The executions with units in use, the longest first.
    SELECT
        u.execution_partition_key,
        u.execution_id,
        u.units,
        u.admitted_at_ms,
        coalesce(c.worker_instance_id, '') AS instance
    FROM gate AS g
    CROSS JOIN LATERAL (
        SELECT
            t.execution_partition_key,
            t.execution_id,
            t.units,
            t.admitted_at_ms
        FROM ffx_gate_use AS t
        WHERE
            t.partition_key = g.partition_key
            AND t.gate_id = g.gate_id
            AND NOT t.settled
        ORDER BY
            t.admitted_at_ms,
            t.execution_id
        LIMIT 1001
    ) AS u
    CROSS JOIN LATERAL (
        SELECT t.attempt_index
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = u.execution_partition_key
            AND t.execution_id = u.execution_id
            AND t.ffx_admitted
        LIMIT 1
    ) AS e
    LEFT JOIN LATERAL (
        SELECT t.worker_instance_id
        FROM ff_attempt AS t
        WHERE
            t.partition_key = u.execution_partition_key
            AND t.execution_id = u.execution_id
            AND t.attempt_index <= e.attempt_index
            AND t.lease_expires_at_ms IS NOT NULL
        ORDER BY t.attempt_index DESC
        LIMIT 1
    ) AS c ON true
)
SELECT
    coalesce(g.namespace, '')::text AS namespace,
    g.name::text AS name,
    coalesce(g.key, '')::text AS key,
    coalesce(g.units, -1)::bigint AS units,
    coalesce(g.window_ms, 0)::bigint AS window_ms,
    coalesce(g.next_at_ms, 0)::bigint AS next_at_ms,
    coalesce(g.hold_until_ms, 0)::bigint AS hold_until_ms,
    coalesce(g.hold_since_ms, 0)::bigint AS hold_since_ms,
    coalesce(g.hold_by, '')::text AS hold_by,
    g.wanted::bigint AS wanted,
    coalesce((SELECT sum(h.units) FROM holders AS h), 0)::bigint AS in_use,
    coalesce(o.execution_partition_key, -1)::smallint AS holder_partition_key,
    o.execution_id AS holder_execution_id,
    coalesce(o.instance, '')::text AS holder_instance
FROM gate AS g
LEFT JOIN LATERAL (
    SELECT
        h.execution_partition_key,
        h.execution_id,
        h.instance
    FROM holders AS h
    ORDER BY
        h.admitted_at_ms,
        h.execution_id
    LIMIT 5
) AS o ON true;

-- name: GetBudgetWaitedFor :one
-- GetBudgetWaitedFor returns the budget in front of a waiting execution. No row: there is none, or the budget does not exist.
--
-- Used by: explain.Execution.
-- Locks: none; spans the partitions of budgets.
SELECT
    -- include budget_columns
FROM ff_exec_core AS e
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.budget_id,
        t.policy_json,
        t.scope_type,
        t.scope_id,
        t.enforcement_mode,
        t.breach_count,
        t.soft_breach_count,
        t.last_breach_at_ms,
        t.last_breach_dim,
        t.next_reset_at_ms,
        t.created_at_ms,
        t.updated_at_ms
    FROM ff_budget_policy AS t
    WHERE
        -- The server has no function for the partition of a budget's id.
        t.partition_key = ANY (ARRAY(SELECT generate_series(0, 31)::smallint))
        AND t.budget_id = e.ffx_gate_id::text
    LIMIT 1
) AS b
-- include budget_usage
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id
    AND e.eligibility_state = 'blocked_by_budget';

-- name: ListWorkersAround :many
-- ListWorkersAround returns up to 200 registered workers of the lane of an execution, and the holder of its lease, live ones
-- first. The table has a row for each process, so it is read whole.
--
-- Used by: explain.Execution.
-- Locks: none. Spans partitions.
SELECT
    coalesce((w.ffx_started ->> e.lane_id)::bigint, 0)::bigint AS started,
    least(w.last_heartbeat_ms - w.registered_at_ms, 600000)::bigint AS started_within_ms,
    (e.lane_id = ANY (w.lanes))::boolean AS claims,
    -- include worker_columns
FROM ff_exec_core AS e
CROSS JOIN (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms) AS n
LEFT JOIN LATERAL (
    SELECT t.worker_instance_id
    FROM ff_attempt AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND t.attempt_index <= e.attempt_index
        AND e.lifecycle_phase = 'active'
    ORDER BY t.attempt_index DESC
    LIMIT 1
) AS a ON true
JOIN ff_worker_registry AS w ON e.lane_id = ANY (w.lanes) OR w.worker_instance_id = a.worker_instance_id
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id
    AND e.lifecycle_phase IN ('runnable', 'active')
ORDER BY
    live DESC,
    w.worker_instance_id COLLATE "C"
LIMIT 200;

-- name: ListLaneHeads :many
-- ListLaneHeads returns lanes with their pauses and the execution that is claimed next, if any. paused_at_ms is 0 unless the lane is
-- paused, and execution_id is NULL unless an execution is claimable.
--
-- Used by: explain.Lanes.
-- Locks: none. Spans partitions.
SELECT
    l.lane_id::text AS lane_id,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms,
    coalesce(h.paused_at_ms, 0)::bigint AS paused_at_ms,
    coalesce(h.reason, '')::text AS pause_reason,
    coalesce(h.until_ms, 0)::bigint AS paused_until_ms,
    coalesce(r.partition_key, 0)::smallint AS partition_key,
    r.execution_id,
    coalesce(r.kind, '')::text AS kind,
    coalesce(r.required_capabilities, '{}')::text[] AS required_capabilities,
    coalesce(e.ffx_last_mutation_at_ms, 0)::bigint AS since_ms
FROM unnest(@lanes::text[]) AS l (lane_id)
LEFT JOIN ffx_pause AS h
    ON h.subject = 'lane'
    AND h.name = l.lane_id
    AND (h.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
LEFT JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.kind,
        t.required_capabilities
    FROM ffx_ready AS t
    WHERE t.lane_id = l.lane_id
    ORDER BY
        t.rank,
        t.created_at_ms,
        t.execution_id
    LIMIT 1
) AS r ON true
LEFT JOIN ff_exec_core AS e
    ON e.partition_key = r.partition_key
    AND e.execution_id = r.execution_id;

-- name: ListWorkersOfLanes :many
-- ListWorkersOfLanes returns up to 1,000 registered workers of some lanes, live ones first. The table has a row for each process, so
-- it is read whole.
--
-- Used by: explain.Lanes.
-- Locks: none. Spans partitions.
SELECT
    w.lanes,
    -- include worker_columns
FROM ff_worker_registry AS w
CROSS JOIN (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms) AS n
WHERE w.lanes && @lanes::text[]
ORDER BY
    live DESC,
    w.worker_instance_id COLLATE "C"
LIMIT 1000;
