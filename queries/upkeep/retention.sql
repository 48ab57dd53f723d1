-- name: GetRetentionWork :one
-- GetRetentionWork returns whether retention has work. ends_due: an end is older than look_after_ms (or the shortest
-- period of a lane or a policy, if less) and was not examined. timers_due: a timer is due. look_after_ms is returned
-- with the value to use. sources: the number of sources with a row.
--
-- Used by: upkeep.Retain.
-- Locks: none. Spans partitions.
WITH shortest AS MATERIALIZED (
    SELECT least(
        @look_after_ms::bigint,
        (SELECT min(l.retention_ms) FROM ffx_lane_retention AS l),
        (SELECT min(p.period_ms) FROM ffx_retention_period AS p)
    ) AS look_after_ms
)
SELECT
    s.look_after_ms::bigint AS look_after_ms,
    (SELECT count(*) FROM ffx_retention)::integer AS sources,
    EXISTS (
        SELECT
        FROM (
            SELECT
                c.event_id,
                c.committed_at_ms
            FROM ff_completion_event AS c
            WHERE c.event_id > (SELECT r.event_id FROM ffx_retention AS r WHERE r.source = 'ends')
            ORDER BY c.event_id
            LIMIT 1
        ) AS f
        WHERE
            f.committed_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - s.look_after_ms
            -- An event dated in the future is as old as the events after; ListEnds treats such events in the same way.
            OR (f.committed_at_ms > ffx_now_ms(sqlc.narg(now_ms)) AND (
                EXISTS (
                    SELECT
                    FROM (
                        SELECT c.committed_at_ms
                        FROM ff_completion_event AS c
                        WHERE c.event_id > f.event_id
                        ORDER BY c.event_id
                        LIMIT 1000
                    ) AS n
                    WHERE n.committed_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - s.look_after_ms
                )
                OR EXISTS (
                    SELECT
                    FROM (
                        SELECT coalesce(
                            (SELECT x.event_id FROM ff_completion_event AS x WHERE x.event_id > f.event_id ORDER BY x.event_id DESC LIMIT 1),
                            f.event_id
                        ) AS newest
                    ) AS n
                    CROSS JOIN generate_series(-40, 40) AS k (step)
                    CROSS JOIN LATERAL (
                        SELECT c.committed_at_ms
                        FROM ff_completion_event AS c
                        WHERE c.event_id >= CASE
                            WHEN k.step < 0 THEN greatest(f.event_id, n.newest + 1 - (1::bigint << (- k.step - 1)))
                            ELSE f.event_id + (1::bigint << k.step)
                        END
                        ORDER BY c.event_id
                        LIMIT 1
                    ) AS e
                    WHERE e.committed_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - s.look_after_ms
                )
            ))
    ) AS ends_due,
    EXISTS (
        SELECT
        FROM ffx_retention_timer AS t
        WHERE
            t.subject = 'execution'
            AND t.due_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ) AS timers_due
FROM shortest AS s;

-- name: EnsureRetentionSources :exec
-- EnsureRetentionSources inserts the missing rows of the sources of retention.
--
-- Used by: upkeep.Retain, upkeep.PurgeFlows.
-- Locks: retention waits (for a concurrent insert of the same row, in one order).
INSERT INTO ffx_retention (source)
SELECT s.source
FROM (SELECT unnest(ARRAY['ends', 'flows', 'members', 'sweep', 'timers']) AS source) AS s
ON CONFLICT (source) DO NOTHING;

-- name: TakeRetentionSource :one
-- TakeRetentionSource locks a source of retention and returns the position. No row: another process works on the
-- source.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows.
-- Locks: retention skips (FOR NO KEY UPDATE).
SELECT
    r.event_id,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM ffx_retention AS r
WHERE r.source = @source
FOR NO KEY UPDATE SKIP LOCKED;

-- name: MoveRetentionSource :exec
-- MoveRetentionSource stores the new position of a source and how many executions were deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows.
-- Locks: retention held.
UPDATE ffx_retention AS r
SET
    event_id = @event_id,
    deleted = r.deleted + sqlc.arg(deleted)::bigint,
    minute = i.minute,
    deleted_in_minute = sqlc.arg(deleted)::bigint + CASE WHEN r.minute = i.minute THEN r.deleted_in_minute ELSE 0 END,
    deleted_in_minute_before = CASE
        WHEN r.minute = i.minute THEN r.deleted_in_minute_before
        WHEN r.minute = i.minute - 1 THEN r.deleted_in_minute
        ELSE 0
    END
FROM (SELECT sqlc.arg(now_ms)::bigint / 60000 AS minute) AS i
WHERE r.source = @source;

-- name: CommitLazily :exec
-- CommitLazily lets the transaction commit without waiting for the disk: lost deletions would be repeated.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.TrimOutboxes, upkeep.PurgeFlows.
-- Locks: none.
SELECT set_config('synchronous_commit', 'off', true);

-- name: ListEnds :many
-- ListEnds returns the executions of the next completion events, up to the first one written later than up_to_ms. An
-- event dated after now_ms counts as old as the events after.
--
-- Used by: upkeep.Retain.
-- Locks: none. Spans partitions.
WITH page AS MATERIALIZED (
    SELECT
        c.event_id,
        c.partition_key,
        c.execution_id,
        c.committed_at_ms AS at_ms
    FROM ff_completion_event AS c
    WHERE c.event_id > @after_event_id
    ORDER BY c.event_id
    LIMIT @page_size::integer
),
behind AS (
    -- include old_event_behind: table = ff_completion_event, at_ms = committed_at_ms, before_ms = @up_to_ms::bigint, now_ms = @now_ms::bigint
),
old AS MATERIALIZED (
    -- The last old event.
    SELECT max(p.event_id) AS event_id
    FROM page AS p
    WHERE
        (p.at_ms <= @up_to_ms::bigint OR EXISTS (SELECT FROM behind))
        AND p.event_id < coalesce(
            (
                SELECT min(y.event_id)
                FROM page AS y
                WHERE
                    y.at_ms > @up_to_ms::bigint
                    AND y.at_ms <= @now_ms::bigint
            ),
            9223372036854775807
        )
)
SELECT
    p.event_id,
    p.partition_key,
    p.execution_id
FROM page AS p
WHERE p.event_id <= (SELECT o.event_id FROM old AS o)
ORDER BY p.event_id;

-- name: TakeRetentionTimers :many
-- TakeRetentionTimers deletes the next due timers, as many as list about max_items, and returns the listed items.
--
-- Used by: upkeep.Retain, upkeep.PurgeFlows.
-- Locks: retention skips (FOR UPDATE, then the DELETE). Spans partitions.
WITH due AS (
    SELECT
        d.row_id,
        d.subject,
        d.due_at_ms,
        d.timer_id,
        sum(d.items) OVER (ORDER BY d.due_at_ms, d.timer_id) - d.items AS earlier
    FROM (
        SELECT
            t.ctid::tid AS row_id,
            t.subject,
            t.due_at_ms,
            t.timer_id,
            t.items
        FROM ffx_retention_timer AS t
        WHERE
            t.subject = @subject
            AND t.due_at_ms <= @now_ms::bigint
        ORDER BY
            t.due_at_ms,
            t.timer_id
        LIMIT 200
        FOR UPDATE SKIP LOCKED
    ) AS d
),
taken AS (
    DELETE FROM ffx_retention_timer AS t
    USING due AS d
    WHERE
        t.ctid = d.row_id
        AND t.subject = d.subject
        AND t.due_at_ms = d.due_at_ms
        AND t.timer_id = d.timer_id
        AND d.earlier < @max_items::bigint
    RETURNING
        t.partition_keys,
        t.ids
)
SELECT
    unnest(t.partition_keys)::smallint AS partition_key,
    unnest(t.ids)::uuid AS id
FROM taken AS t;

-- name: InsertRetentionTimer :exec
-- InsertRetentionTimer stores when to examine executions, or flows, again.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows.
-- Locks: retention new.
INSERT INTO ffx_retention_timer (due_at_ms, timer_id, subject, items, partition_keys, ids)
VALUES (
    @due_at_ms,
    gen_random_uuid(),
    @subject,
    cardinality(@ids::uuid[]),
    @partition_keys,
    @ids::uuid[]
);

-- name: TakeEnded :many
-- TakeEnded returns the given executions that have ended, with their retention, and locks the ones whose retention has
-- passed (taken). An execution due but not taken is locked elsewhere or no longer ended. A member is kept with the
-- flow: then in_flow is true, and retention_ms is the flow's period for ended members (prune), for ever by default. The
-- caller reads afterwards whether others depend on the executions. If ahead_due, an end dated after now_ms is due too,
-- unless kept for ever.
--
-- awaited: the execution was called, and the caller has neither ended nor stored the result. Awaited executions are not
-- taken. The caller and the step are read without locks. The step was stored with the called execution, so a statement
-- that sees the execution sees the step too. Only a replay of an ended caller may come too late.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue.
-- Locks: L1 skips (execution rows FOR UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    i.partition_key::smallint AS partition_key,
    i.execution_id::uuid AS execution_id,
    e.flow_id,
    e.in_flow::boolean AS in_flow,
    e.terminal_at_ms::bigint AS terminal_at_ms,
    e.retention_ms::bigint AS retention_ms,
    w.awaited::boolean AS awaited,
    coalesce(t.taken, false)::boolean AS taken
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        c.execution_id,
        c.flow_id,
        c.terminal_at_ms,
        c.ffx_caller,
        (f.prune_ms IS NOT NULL) AS in_flow,
        CASE
            WHEN f.prune_ms IS NULL THEN ffx_retention_of(
                c.policy,
                (SELECT l.retention_ms FROM ffx_lane_retention AS l WHERE l.lane_id = c.lane_id),
                @default_ms::bigint
            )
            ELSE f.prune_ms
        END AS retention_ms
    FROM ff_exec_core AS c
    LEFT JOIN LATERAL (
        SELECT coalesce(ffx_read_number(t.raw_fields, 'ffx_prune_members_after_ms'), 9223372036854775807) AS prune_ms
        FROM ff_flow_core AS t
        WHERE
            t.partition_key = c.partition_key
            AND t.flow_id = c.flow_id
        LIMIT 1
    ) AS f ON true
    WHERE
        c.partition_key = i.partition_key
        AND c.execution_id = i.execution_id
        AND c.lifecycle_phase IN ('terminal', 'cancelled')
        AND c.terminal_at_ms IS NOT NULL
    LIMIT 1
) AS e
CROSS JOIN LATERAL (
    SELECT (
        -- include awaited: execution = e
    ) AS awaited
    OFFSET 0
) AS w
LEFT JOIN LATERAL (
    SELECT true AS taken
    FROM ff_exec_core AS c
    WHERE
        NOT w.awaited
        AND c.partition_key = i.partition_key
        AND c.execution_id = i.execution_id
        AND c.lifecycle_phase IN ('terminal', 'cancelled')
        AND CASE
            WHEN c.terminal_at_ms > sqlc.arg(now_ms)::bigint THEN @ahead_due::boolean AND e.retention_ms < 9223372036854775807
            ELSE c.terminal_at_ms <= sqlc.arg(now_ms)::bigint - e.retention_ms
        END
    FOR UPDATE SKIP LOCKED
) AS t ON true;

-- name: ListAwaited :many
-- ListAwaited returns the input positions of executions called by another one that has neither ended nor stored their
-- results. The caller of the statement has locked the called executions. As in TakeEnded, only a replay of an ended
-- caller may come too late.
--
-- Used by: operator.DeleteWhere.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@ords::integer[]) AS ord
)
SELECT i.ord::integer AS ord
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.execution_id,
        t.ffx_caller
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
WHERE (
    -- include awaited: execution = e
);

-- name: InsertPrunedMembers :exec
-- InsertPrunedMembers stores members the caller has locked and is about to delete before their flow.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue.
-- Locks: L0 new: the flow's lock is held, shared.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
INSERT INTO ffx_pruned_member (partition_key, flow_id, execution_id, node_key, ended_at_ms)
SELECT
    e.partition_key,
    e.flow_id,
    e.execution_id,
    e.node_key,
    e.terminal_at_ms
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.flow_id,
        t.execution_id,
        coalesce(t.raw_fields ->> 'ffx_node_key', '') AS node_key,
        t.terminal_at_ms
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
ON CONFLICT (partition_key, flow_id, execution_id) DO NOTHING;

-- name: ListPrunedMembers :many
-- ListPrunedMembers returns the given executions that are pruned members of a flow.
--
-- Used by: engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, engine.AddMembers, engine.StageEdges.
-- Locks: none. The caller holds the flow's exclusive lock.
SELECT p.execution_id
FROM ffx_pruned_member AS p
WHERE
    p.partition_key = @partition_key
    AND p.flow_id = @flow_id
    AND p.execution_id = ANY (@execution_ids::uuid[]);

-- name: ListPrunedUpstreams :many
-- ListPrunedUpstreams returns pruned upstreams of a member, by key and id, at most page_size.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: none. The caller holds the flow's exclusive lock.
SELECT
    p.execution_id,
    p.node_key
FROM (
    SELECT t.upstream_eid
    FROM ff_edge AS t
    WHERE
        t.downstream_eid = @execution_id::uuid
        AND (t.partition_key = @partition_key::smallint OR t.partition_key IS NULL)
        AND (t.flow_id = @flow_id::uuid) IS TRUE
        AND t.policy <> 'null' -- this column is not in the index that covers the others
) AS d
CROSS JOIN LATERAL (
    SELECT
        t.execution_id,
        t.node_key
    FROM ffx_pruned_member AS t
    WHERE
        t.partition_key = @partition_key::smallint
        AND t.flow_id = @flow_id::uuid
        AND t.execution_id = d.upstream_eid
    LIMIT 1
) AS p
ORDER BY
    p.node_key COLLATE "C",
    p.execution_id
LIMIT @page_size::integer;

-- name: ListNeeded :many
-- ListNeeded returns the still needed ones among members of flows, locked by the caller: a dependent has not ended, or
-- the backlog of a cancelled flow lists the member.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@flow_ids::uuid[]) AS flow_id
)
SELECT i.execution_id::uuid AS execution_id
FROM input AS i
WHERE
    EXISTS (
        SELECT
        FROM ff_edge AS g
        CROSS JOIN LATERAL (
            SELECT
            FROM ff_exec_core AS d
            WHERE
                d.partition_key = g.partition_key
                AND d.execution_id = g.downstream_eid
                AND (d.lifecycle_phase IN ('terminal', 'cancelled')) IS NOT TRUE
            LIMIT 1
        ) AS waiting
        WHERE
            g.upstream_eid = i.execution_id
            AND (g.partition_key = i.partition_key OR g.partition_key IS NULL)
            AND (g.flow_id = i.flow_id) IS TRUE
            AND g.policy <> 'null' -- this column is not in the index that covers the others
    )
    OR EXISTS (
        SELECT
        FROM ff_cancel_backlog_member AS m
        WHERE
            m.partition_key = i.partition_key
            AND m.execution_id = '{fp:' || i.partition_key::text || '}:' || i.execution_id::text
        OFFSET 0
    );

-- name: ListUndispatched :many
-- ListUndispatched returns the ones with an undispatched event among members of flows, locked by the caller. Reads all
-- undispatched events once.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.DispatchCompletions, upkeep.RepairGroups.
-- Locks: none. Spans partitions.
SELECT u.execution_id
FROM ff_completion_event AS u
WHERE
    u.dispatched_at_ms IS NULL
    AND u.flow_id IS NOT NULL
    AND u.execution_id = ANY (@execution_ids::uuid[]);

-- name: NoteStartsOf :exec
-- NoteStartsOf notes when ended executions started under their limits, before the caller deletes the locked executions
-- with their attempts: the starts go on counting in their windows. An execution never started counts no more. The
-- transaction holding a locked admission counts now, and notes the start.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: gates skips (admissions FOR NO KEY UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
),
started AS MATERIALIZED (
    -- Their admissions without a known start, each with the start.
    SELECT
        u.partition_key,
        u.gate_id,
        u.execution_id,
        u.admitted_at_ms,
        coalesce(a.started_at_ms, 0) AS started_at_ms
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT t.ffx_limit_ids
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
        LIMIT 1
    ) AS e
    CROSS JOIN LATERAL unnest(e.ffx_limit_ids) AS g (gate_id)
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.gate_id,
            t.execution_id,
            t.admitted_at_ms,
            t.execution_partition_key,
            t.started_at_ms,
            CASE WHEN t.admitted_at_ms > ffx_now_ms(sqlc.narg(now_ms)) THEN 0 ELSE t.admitted_at_ms END AS since_ms,
            lead(t.admitted_at_ms) OVER (ORDER BY t.admitted_at_ms) AS again_at_ms
        FROM ffx_gate_use AS t
        WHERE
            t.partition_key = get_byte(uuid_send(g.gate_id), 0)::smallint
            AND t.gate_id = g.gate_id
            AND t.execution_id = i.execution_id
    ) AS u
    -- include gate_started
    WHERE u.started_at_ms IS NULL
),
free AS (
    -- The admissions not locked elsewhere, locked.
    SELECT
        l.row_id,
        s.partition_key,
        s.gate_id,
        s.execution_id,
        s.admitted_at_ms,
        s.started_at_ms
    FROM started AS s
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS row_id
        FROM ffx_gate_use AS t
        WHERE
            t.partition_key = s.partition_key
            AND t.gate_id = s.gate_id
            AND t.execution_id = s.execution_id
            AND t.admitted_at_ms = s.admitted_at_ms
            AND num_nulls(t.started_at_ms) = 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS l
)
UPDATE ffx_gate_use AS u
SET started_at_ms = f.started_at_ms
FROM free AS f
WHERE
    u.ctid = f.row_id
    AND (u.partition_key = f.partition_key) IS TRUE
    AND (u.gate_id = f.gate_id) IS TRUE
    AND u.execution_id = f.execution_id
    AND (u.admitted_at_ms = f.admitted_at_ms) IS TRUE;

-- name: GetRetainedTables :one
-- GetRetainedTables returns which optional tables may have rows of executions: a table never written to has no page.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: none.
SELECT
    bool_or(t.name = 'ff_stream_frame')::boolean AS stream_frames,
    bool_or(t.name = 'ff_stream_meta')::boolean AS stream_metas,
    bool_or(t.name = 'ff_stream_summary')::boolean AS stream_summaries,
    bool_or(t.name = 'ff_claim_grant')::boolean AS claim_grants,
    bool_or(t.name = 'ff_suspension_current')::boolean AS suspensions,
    bool_or(t.name = 'ff_waitpoint_pending')::boolean AS waitpoints,
    bool_or(t.name = 'ff_budget_usage_by_exec')::boolean AS budget_usage,
    bool_or(t.name = 'ffx_step')::boolean AS steps,
    bool_or(t.name = 'ffx_signal_key')::boolean AS signal_keys,
    bool_or(t.name = 'ffx_business_key')::boolean AS business_keys,
    bool_or(t.name = 'ffx_unique')::boolean AS unique_keys,
    bool_or(t.name = 'ffx_gate_use')::boolean AS gate_uses
FROM (
    SELECT unnest(ARRAY[
        'none',
        'ff_stream_frame',
        'ff_stream_meta',
        'ff_stream_summary',
        'ff_claim_grant',
        'ff_suspension_current',
        'ff_waitpoint_pending',
        'ff_budget_usage_by_exec',
        'ffx_step',
        'ffx_signal_key',
        'ffx_business_key',
        'ffx_unique',
        'ffx_gate_use'
    ]) AS name
) AS t
CROSS JOIN LATERAL (
    SELECT
    FROM pg_catalog.pg_class AS c
    WHERE
        c.oid = to_regclass(t.name)
        AND (c.relkind = 'p' OR pg_relation_size(c.oid::regclass) > 0)
    UNION ALL
    SELECT
    WHERE t.name = 'none'
) AS used;

-- name: DropAttemptsOf :exec
-- DropAttemptsOf deletes the attempts of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L2 waits (DELETE).
-- include drop_of_executions: table = ff_attempt

-- name: DropStreamFramesOf :exec
-- DropStreamFramesOf deletes the output of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L2 waits (DELETE).
-- include drop_of_executions: table = ff_stream_frame

-- name: ListStreamSizes :many
-- ListStreamSizes returns how many frames the streams of executions have at most, for executions with frames: trimmed
-- frames count.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    i.execution_id::uuid AS execution_id,
    s.frames::bigint AS frames
FROM input AS i
CROSS JOIN LATERAL (
    SELECT sum(t.ffx_stream_frames) AS frames
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
) AS s
WHERE s.frames > 0;

-- name: DropStreamFramesPage :execrows
-- DropStreamFramesPage deletes the first frames of an execution, as many as page_size. 0 rows: the execution has fewer,
-- and all are there still.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L2 waits (DELETE).
DELETE FROM ff_stream_frame AS t
WHERE
    t.partition_key = @partition_key
    AND t.execution_id = @execution_id
    AND (t.attempt_index, t.ts_ms, t.seq) <= (
        -- The last one of the page; looked up once.
        SELECT
            f.attempt_index,
            f.ts_ms,
            f.seq
        FROM ff_stream_frame AS f
        WHERE
            f.partition_key = @partition_key
            AND f.execution_id = @execution_id
        ORDER BY
            f.attempt_index,
            f.ts_ms,
            f.seq
        LIMIT 1
        OFFSET sqlc.arg(page_size)::integer - 1
    );

-- name: DropStreamMetasOf :exec
-- DropStreamMetasOf deletes the stream metadata of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L2 waits (DELETE).
-- include drop_of_executions: table = ff_stream_meta

-- name: DropStreamSummariesOf :exec
-- DropStreamSummariesOf deletes the summaries of the streams of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L2 waits (DELETE).
-- include drop_of_executions: table = ff_stream_summary

-- name: DropClaimGrantsOf :exec
-- DropClaimGrantsOf deletes the grants of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L5 waits (DELETE).
-- include drop_of_executions: table = ff_claim_grant

-- name: DropSuspensionsOf :exec
-- DropSuspensionsOf deletes the suspensions of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L5 waits (DELETE).
-- include drop_of_executions: table = ff_suspension_current

-- name: DropWaitpointsOf :exec
-- DropWaitpointsOf deletes the waitpoints of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L5 waits (DELETE).
-- include drop_of_executions: table = ff_waitpoint_pending

-- name: DropStepsOf :exec
-- DropStepsOf deletes the steps of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L2 waits (DELETE).
-- include drop_of_executions: table = ffx_step

-- name: DropSignalKeysOf :exec
-- DropSignalKeysOf deletes the keys of the signals of executions about to be deleted.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L5 waits (DELETE).
-- include drop_of_executions: table = ffx_signal_key

-- name: DropBudgetUsageOf :exec
-- DropBudgetUsageOf deletes the individual budget usage of executions about to be deleted: the sums of the budgets
-- stay. The rows are in the partitions of the budgets.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L6 waits (DELETE). Spans partitions.
DELETE FROM ff_budget_usage_by_exec AS u
USING (
    SELECT unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE u.execution_id = i.execution_id;

-- name: DropExecutions :execrows
-- DropExecutions deletes executions the caller has locked, after all their other rows.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: L1 held (DELETE).
DELETE FROM ff_exec_core AS t
USING (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
WHERE
    t.partition_key = ANY (ARRAY[i.partition_key])
    AND t.execution_id = i.execution_id
    AND t.lifecycle_phase IN ('terminal', 'cancelled');
