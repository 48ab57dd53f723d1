-- name: SuspendExecutions :many
-- SuspendExecutions lets executions wait for signals, by ord (from 0): suspended, or satisfied by signals that came
-- early. A satisfied execution keeps the lease, and the signals are in the suspension, and in the step the spec names.
--
-- Used by: engine.Suspend, engine.SuspendEach.
-- Locks: L1 held; L2 held (steps are new); L5 waits (waitpoint rows, which the job for expired waitpoints may hold); L7
-- new.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@specs::text[]) AS spec,
        generate_series(0, cardinality(@execution_ids::uuid[]) - 1) AS ord
)
SELECT
    i.ord::integer AS ord,
    ffx_suspend(i.partition_key, i.execution_id, i.attempt_index, i.spec::jsonb, @now_ms::bigint)::text AS result
FROM input AS i;

-- name: ListSuspensionIDs :many
-- ListSuspensionIDs reads the ids of the latest suspensions of executions, by ord (from 0), and whether each was
-- written as open. No row: the execution was never suspended.
--
-- Used by: engine.Suspend, engine.SuspendEach.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        generate_series(0, cardinality(@execution_ids::uuid[]) - 1) AS ord
)
SELECT
    i.ord::integer AS ord,
    s.suspension_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT c.suspension_id
    FROM ff_suspension_current AS c
    WHERE
        c.partition_key = i.partition_key
        AND c.execution_id = i.execution_id
    LIMIT 1
) AS s;

-- name: GetSuspension :one
-- GetSuspension reads the latest suspension of an execution and the signals received, also after the end of the
-- execution. open: the execution still waits. No row: the execution was never suspended.
--
-- Used by: engine.ReceivedSignals.
-- Locks: none.
SELECT
    s.suspension_id,
    s.suspended_at_ms,
    s.timeout_at_ms,
    s.timeout_behavior,
    s.reason_code,
    s.condition,
    s.satisfied_set,
    s.member_map,
    s.ffx_asked,
    s.ffx_continuation_pointer,
    (s.ffx_open_since_ms IS NOT NULL)::boolean AS open
FROM ff_suspension_current AS s
WHERE
    s.partition_key = @partition_key
    AND s.execution_id = @execution_id;

-- name: AreValidPaths :one
-- AreValidPaths checks whether texts are SQL/JSON paths without variables, as the server reads paths.
--
-- Used by: engine.Suspend, engine.SuspendEach.
-- Locks: none.
SELECT coalesce((SELECT bool_and(ffx_is_path(p.path)) FROM (SELECT unnest(@paths::text[]) AS path) AS p), true)::boolean AS valid;

-- name: ResumeExecution :one
-- ResumeExecution ends the wait of a suspended execution the caller has locked. With signals, which record a timeout,
-- the step of the wait is stored. Returns the lane, or '' if a worker can't claim the execution yet.
--
-- Used by: engine.Resume, upkeep.ExpireWaits.
-- Locks: L1 held; L2 new (the step of a timed-out wait); L5 waits (waitpoint rows, DELETE); L7 new.
SELECT coalesce(
    ffx_resume(
        @partition_key::smallint, @execution_id::uuid, sqlc.narg(signals)::text::jsonb, '[]', @shown_as::text,
        @delay_ms::bigint, @now_ms::bigint
    ),
    ''
)::text AS lane;

-- name: ScanTimedOutWaits :many
-- ScanTimedOutWaits finds timed-out waits, the oldest first, after a position, with the flows of their executions.
--
-- Used by: upkeep.ExpireWaits.
-- Locks: none. Spans partitions.
SELECT
    s.timeout_at_ms::bigint AS timeout_at_ms,
    s.partition_key,
    s.execution_id,
    e.flow_id
FROM (
    SELECT
        t.partition_key,
        t.execution_id,
        t.timeout_at_ms
    FROM ff_suspension_current AS t
    WHERE
        t.timeout_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
        AND (t.timeout_at_ms, t.partition_key, t.execution_id)
        > (@after_timeout_at_ms::bigint, @after_partition_key::smallint, @after_execution_id::uuid)
    ORDER BY
        t.timeout_at_ms,
        t.partition_key,
        t.execution_id
    LIMIT @page_size::integer
) AS s
CROSS JOIN LATERAL (
    SELECT x.flow_id
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = s.partition_key
        AND x.execution_id = s.execution_id
    LIMIT 1
) AS e
ORDER BY
    s.timeout_at_ms,
    s.partition_key,
    s.execution_id;

-- name: TakeSuspended :many
-- TakeSuspended locks the first max_items of the given executions that are still suspended and not held by another
-- transaction. highest_epoch: of the execution and its attempts.
--
-- Used by: upkeep.ExpireWaits.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE). The caller holds the flows of members.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.highest_epoch
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        coalesce(t.ffx_lease_epoch, 0)::bigint AS highest_epoch
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.lifecycle_phase = 'suspended'
    FOR NO KEY UPDATE SKIP LOCKED
) AS e
LIMIT @max_items::integer;

-- name: ReadTimeouts :many
-- ReadTimeouts reads the timed-out waits of suspended executions the caller has locked, by ord (from 0). No row: the
-- wait has ended, or has not timed out.
--
-- Used by: upkeep.ExpireWaits.
-- Locks: none. The caller has locked the executions.
WITH clock AS MATERIALIZED (
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        generate_series(0, cardinality(@execution_ids::uuid[]) - 1) AS ord
)
SELECT
    i.ord::integer AS ord,
    s.suspension_id,
    coalesce(s.timeout_behavior, 'fail')::text AS timeout_behavior,
    s.condition,
    s.member_map,
    (SELECT now_ms FROM clock)::bigint AS now_ms
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        c.suspension_id,
        c.timeout_behavior,
        c.condition,
        c.member_map
    FROM ff_suspension_current AS c
    WHERE
        c.partition_key = i.partition_key
        AND c.execution_id = i.execution_id
        AND c.timeout_at_ms <= (SELECT now_ms FROM clock)
    LIMIT 1
) AS s;

-- name: ForgetWaitTimeouts :execrows
-- ForgetWaitTimeouts closes the waits of the locked executions that are not suspended: another program has resumed or
-- ended the executions. Their signals stay readable.
--
-- Used by: upkeep.ExpireWaits.
-- Locks: L1 held; L5 held, by the execution's row.
UPDATE ff_suspension_current AS s
SET
    timeout_at_ms = NULL,
    timeout_behavior = NULL,
    ffx_open_since_ms = NULL
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    s.partition_key = ANY (ARRAY[i.partition_key])
    AND s.execution_id = i.execution_id
    AND (
        SELECT e.lifecycle_phase <> 'suspended'
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = i.partition_key
            AND e.execution_id = i.execution_id
        LIMIT 1
    );

-- name: SweepSuspensions :one
-- SweepSuspensions examines a page of suspensions in the order of their key. A suspension is deleted if the execution
-- ended an hour ago or no longer exists. last_key is null if nothing follows.
--
-- Passages: swept_waits.
-- Used by: upkeep.SweepWaits.
-- Locks: L5 skips (suspension rows FOR UPDATE, then the DELETE). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
page AS MATERIALIZED (
    -- The rows of the page.
    SELECT
        t.ctid::tid AS row_id,
        t.partition_key,
        t.execution_id
    FROM ff_suspension_current AS t
    WHERE (t.partition_key, t.execution_id) > (@after_partition_key::smallint, @after_key::uuid)
    ORDER BY
        t.partition_key,
        t.execution_id
    LIMIT @page_size::integer
),
ended AS (
    -- The rows whose executions ended long enough ago, or no longer exist.
    SELECT
        l.row_id,
        p.partition_key,
        p.execution_id
    FROM page AS p
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS row_id
        FROM ff_suspension_current AS t
        WHERE
            t.ctid = p.row_id
            AND t.partition_key = p.partition_key
            AND t.execution_id = p.execution_id
            AND (
                SELECT
                    e.lifecycle_phase IN ('terminal', 'cancelled')
                    AND (e.terminal_at_ms <= (SELECT now_ms FROM clock) - 3600000) IS TRUE
                FROM ff_exec_core AS e
                WHERE
                    e.partition_key = t.partition_key
                    AND e.execution_id = t.execution_id
                LIMIT 1
            ) IS NOT FALSE
        FOR UPDATE SKIP LOCKED
    ) AS l
),
deleted AS (
    -- The rows, deleted.
    DELETE FROM ff_suspension_current AS t
    USING ended AS d
    WHERE
        t.ctid = d.row_id
        AND (t.partition_key = d.partition_key) IS TRUE
        AND t.execution_id = d.execution_id
    RETURNING t.partition_key
)
SELECT
    coalesce(z.partition_key, -1)::smallint AS last_partition_key,
    z.execution_id::uuid AS last_key,
    (SELECT count(*) FROM page)::integer AS examined,
    (SELECT count(*) FROM deleted)::integer AS deleted
FROM clock
LEFT JOIN LATERAL (
    SELECT
        p.partition_key,
        p.execution_id
    FROM page AS p
    ORDER BY
        p.partition_key DESC,
        p.execution_id DESC
    LIMIT 1
) AS z ON true;

-- name: EscalateWait :exec
-- EscalateWait lets a wait go on without a timeout, for an operator's review. The waitpoints stay open.
--
-- Used by: upkeep.ExpireWaits.
-- Locks: L1 held; L5 held, by the execution's row.
WITH escalated AS (
    UPDATE ff_suspension_current AS s
    SET
        timeout_at_ms = NULL,
        timeout_behavior = NULL,
        reason_code = 'waiting_for_operator_review'
    WHERE
        s.partition_key = @partition_key
        AND s.execution_id = @execution_id
),
kept_open AS (
    UPDATE ff_waitpoint_pending AS w
    SET expires_at_ms = NULL
    WHERE
        w.partition_key = @partition_key
        AND w.execution_id = @execution_id
        AND w.state = 'active'
)
UPDATE ff_exec_core AS e
SET
    blocking_reason = 'paused_by_operator',
    ffx_last_mutation_at_ms = @now_ms::bigint
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: ListWaits :many
-- ListWaits lists executions waiting for signals, the longest wait first, after a position. fits is false for an
-- execution that is not suspended any more; with a name, unless it waits for a signal of the name or of any name; with
-- a tag, unless the execution has the tag.
--
-- Passages: unused_signals.
-- Used by: engine.ListWaits, engine.Waits.
-- Locks: none. Spans partitions.
SELECT
    s.partition_key,
    s.execution_id,
    s.suspension_id,
    s.suspended_at_ms,
    s.timeout_at_ms,
    coalesce(s.timeout_behavior, '')::text AS timeout_behavior,
    s.condition,
    s.ffx_open_since_ms::bigint AS open_since_ms,
    coalesce(s.ffx_asked, '')::text AS asked,
    coalesce(e.lane_id, '')::text AS lane_id,
    coalesce(e.namespace, '')::text AS namespace,
    coalesce(e.kind, '')::text AS kind,
    coalesce(e.blocking_reason, '')::text AS blocking_reason,
    u.unused_signals,
    (
        e.lane_id IS NOT NULL
        AND (
            sqlc.narg(name)::text IS NULL
            OR jsonb_path_exists(
                s.condition, '$.**.matcher ? (@ == "Wildcard" || @.ByName == $name)', jsonb_build_object('name', sqlc.narg(name)::text)
            )
        )
    )::boolean AS fits
FROM ff_suspension_current AS s
LEFT JOIN LATERAL (
    SELECT
        x.lane_id,
        coalesce(x.ffx_namespace, '')::text AS namespace,
        coalesce(x.raw_fields ->> 'execution_kind', '')::text AS kind,
        coalesce(x.blocking_reason, '')::text AS blocking_reason
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = s.partition_key
        AND x.execution_id = s.execution_id
        AND x.lifecycle_phase = 'suspended'
        AND (sqlc.narg(tag_key)::text IS NULL OR x.raw_fields -> 'tags' ->> sqlc.narg(tag_key)::text = sqlc.narg(tag_value)::text)
    LIMIT 1
) AS e ON true
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
    s.ffx_open_since_ms IS NOT NULL
    AND (s.ffx_open_since_ms, s.partition_key, s.execution_id)
    > (@after_since_ms::bigint, @after_partition_key::smallint, @after_execution_id::uuid)
    AND (sqlc.narg(before_ms)::bigint IS NULL OR s.ffx_open_since_ms < sqlc.narg(before_ms)::bigint)
ORDER BY
    s.ffx_open_since_ms,
    s.partition_key,
    s.execution_id
LIMIT @page_size::integer;
