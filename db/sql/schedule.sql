-- name: TakeDueSchedules :many
-- TakeDueSchedules locks the due schedules, the first ones first, from a time on: before this time the index has the
-- dead entries of earlier ticks, as long as a snapshot may see them. A schedule another process has moved on meanwhile
-- has no row, nor has a locked one.
--
-- Passages: schedule_columns.
-- Used by: upkeep.RunSchedules.
-- Locks: schedules skips (FOR NO KEY UPDATE).
SELECT
    -- All columns of ffx_schedule, in the order of the table: the generated row is the table's.
    s.namespace,
    s.name,
    s.declared_by,
    s.cron,
    s.time_zone,
    s.every_ms,
    s.jitter_ms,
    s.start_ms,
    s.end_ms,
    s.missed,
    s.window_ms,
    s.overlap,
    s.kind,
    s.lane_id,
    s.payload,
    s.payload_encoding,
    s.priority,
    s.creator,
    s.policy,
    s.tags,
    s.unique_work,
    s.sequence,
    s.budget_ids,
    s.quota_policy_id,
    s.limits,
    s.fair,
    s.next_ms,
    s.tick_ms,
    s.queued_ms,
    s.paused_at_ms,
    s.pause_reason,
    s.paused_as_vanished,
    s.last_tick_ms,
    s.last_at_ms,
    s.last_outcome,
    s.last_error,
    s.last_partition_key,
    s.last_execution_id,
    s.recent,
    s.created_at_ms,
    s.changed_at_ms
FROM ffx_schedule AS s
WHERE
    s.next_ms >= @from_ms::bigint
    AND s.next_ms <= ffx_now_ms(sqlc.narg(now_ms))
ORDER BY s.next_ms
LIMIT @batch_size::integer
FOR NO KEY UPDATE SKIP LOCKED;

-- name: RecallSchedules :execrows
-- RecallSchedules makes schedules due whose last change or tick is more than a minute in the future: the clock was
-- ahead. Their next tick is the first one from now on, stored as 0. A paused one stays paused.
--
-- Used by: upkeep.RunSchedules.
-- Locks: schedules skips (FOR NO KEY UPDATE, then the UPDATE).
WITH ahead AS (
    SELECT
        t.namespace,
        t.name,
        c.now_ms
    FROM (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms OFFSET 0) AS c
    CROSS JOIN LATERAL (
        SELECT
            r.namespace,
            r.name
        FROM ffx_schedule AS r
        WHERE greatest(r.last_at_ms, r.changed_at_ms) > c.now_ms + 60000
        ORDER BY greatest(r.last_at_ms, r.changed_at_ms) DESC
        LIMIT @batch_size::integer
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS t
)
UPDATE ffx_schedule AS s
SET
    tick_ms = 0,
    next_ms = CASE WHEN s.paused_at_ms IS NULL THEN a.now_ms END,
    last_at_ms = least(s.last_at_ms, a.now_ms),
    changed_at_ms = least(s.changed_at_ms, a.now_ms)
FROM ahead AS a
WHERE
    s.namespace = ANY (ARRAY[a.namespace])
    AND s.name = a.name;

-- name: HastenQueuedTicks :execrows
-- HastenQueuedTicks makes schedules due whose tick waits for an execution that has ended. A locked one is left out, and
-- becomes due later by itself.
--
-- Used by: upkeep.RunSchedules.
-- Locks: schedules skips (FOR NO KEY UPDATE, then the UPDATE).
WITH input AS (
    SELECT
        unnest(@namespaces::text[]) AS namespace,
        unnest(@names::text[]) AS name
),
locked AS (
    SELECT
        l.namespace,
        l.name
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.namespace,
            t.name
        FROM ffx_schedule AS t
        WHERE
            t.namespace = i.namespace
            AND t.name = i.name
            AND t.queued_ms IS NOT NULL
            AND NOT EXISTS (
                SELECT
                FROM ff_exec_core AS e
                WHERE
                    e.partition_key = t.last_partition_key
                    AND e.execution_id = t.last_execution_id
                    AND e.lifecycle_phase NOT IN ('terminal', 'cancelled')
                OFFSET 0
            )
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS l
)
UPDATE ffx_schedule AS s
SET next_ms = ffx_now_ms(sqlc.narg(now_ms))
FROM locked AS l
WHERE
    s.namespace = ANY (ARRAY[l.namespace])
    AND s.name = l.name;

-- name: ListRunningAmong :many
-- ListRunningAmong returns which of some executions exist and have not ended, by ord (from 0).
--
-- Used by: upkeep.RunSchedules.
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
    SELECT true AS found
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.lifecycle_phase NOT IN ('terminal', 'cancelled')
    LIMIT 1
) AS e;

-- name: TakeOrderedSequences :many
-- TakeOrderedSequences locks the sequences of due ticks, and returns the ticks, by ord (from 0), whose sequence another
-- transaction holds. A missing sequence, or one now locked for the caller, has no row.
--
-- Used by: upkeep.RunSchedules.
-- Locks: sequences skips (FOR NO KEY UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@sequence_ids::uuid[]) AS sequence_id,
        unnest(@ords::integer[]) AS ord
)
SELECT i.ord::integer AS ord
FROM input AS i
CROSS JOIN LATERAL (
    SELECT true AS found
    FROM ffx_sequence AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.sequence_id = i.sequence_id
    LIMIT 1
) AS k
LEFT JOIN LATERAL (
    SELECT true AS taken
    FROM ffx_sequence AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.sequence_id = i.sequence_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS l ON true
WHERE l.taken IS NOT TRUE;

-- name: TakeOrderedKeys :many
-- TakeOrderedKeys locks the unique keys of due ticks, and returns the ticks, by ord (from 0), whose key another
-- transaction holds. A missing key, or one now locked for the caller, has no row.
--
-- Used by: upkeep.RunSchedules.
-- Locks: keys skips (rows FOR NO KEY UPDATE).
WITH input AS (
    SELECT
        unnest(@unique_keys::uuid[]) AS key,
        unnest(@ords::integer[]) AS ord
)
SELECT i.ord::integer AS ord
FROM input AS i
CROSS JOIN LATERAL (
    SELECT true AS found
    FROM ffx_unique AS t
    WHERE t.key = i.key
    LIMIT 1
) AS k
LEFT JOIN LATERAL (
    SELECT true AS taken
    FROM ffx_unique AS t
    WHERE t.key = i.key
    FOR NO KEY UPDATE SKIP LOCKED
) AS l ON true
WHERE l.taken IS NOT TRUE;

-- name: MoveSchedules :one
-- MoveSchedules stores the last ticks of locked schedules, and when each is due again. An instant of 0 means none.
-- Returns when the first of all schedules is due after the time of the call; 0 if none is.
--
-- Used by: upkeep.RunSchedules, schedule.Put, schedule.Declare, schedule.Resume, schedule.Trigger.
-- Locks: schedules held (UPDATE).
WITH input AS (
    SELECT
        unnest(@namespaces::text[]) AS namespace,
        unnest(@names::text[]) AS name,
        unnest(@nexts_ms::bigint[]) AS next_ms,
        unnest(@ticks_ms::bigint[]) AS tick_ms,
        unnest(@queued_ms::bigint[]) AS queued_ms,
        unnest(@last_ticks_ms::bigint[]) AS last_tick_ms,
        unnest(@last_at_ms::bigint[]) AS last_at_ms,
        unnest(@last_outcomes::text[]) AS last_outcome,
        unnest(@last_errors::text[]) AS last_error,
        unnest(@last_partition_keys::smallint[]) AS last_partition_key,
        unnest(@last_execution_ids::uuid[]) AS last_execution_id,
        unnest(@recents::bytea[]) AS recent
),
moved AS (
    UPDATE ffx_schedule AS s
    SET
        next_ms = nullif(i.next_ms, 0),
        tick_ms = nullif(i.tick_ms, 0),
        queued_ms = nullif(i.queued_ms, 0),
        paused_at_ms = CASE WHEN sqlc.arg(resume)::boolean THEN NULL ELSE s.paused_at_ms END,
        pause_reason = CASE WHEN sqlc.arg(resume)::boolean THEN '' ELSE s.pause_reason END,
        paused_as_vanished = s.paused_as_vanished AND NOT sqlc.arg(resume)::boolean,
        last_tick_ms = nullif(i.last_tick_ms, 0),
        last_at_ms = nullif(i.last_at_ms, 0),
        last_outcome = i.last_outcome,
        last_error = i.last_error,
        last_partition_key = CASE WHEN i.last_execution_id IS NOT NULL THEN i.last_partition_key END,
        last_execution_id = i.last_execution_id,
        recent = i.recent
    FROM input AS i
    WHERE
        s.namespace = ANY (ARRAY[i.namespace])
        AND s.name = i.name
    RETURNING s.next_ms
)
SELECT
    coalesce(least(
        (SELECT min(m.next_ms) FROM moved AS m),
        (
            -- The statement still sees the schedules at their former times: due before.
            SELECT t.next_ms
            FROM ffx_schedule AS t
            WHERE t.next_ms > @after_ms::bigint
            ORDER BY t.next_ms
            LIMIT 1
        )
    ), 0)::bigint AS next_ms,
    (SELECT count(*) FROM moved)::bigint AS moved;

-- name: GetNextSchedule :one
-- GetNextSchedule returns when the first schedule is due from a time on, past or future; 0 if none is, and the time of the
-- call.
--
-- Used by: upkeep.RunSchedules.
-- Locks: none.
SELECT
    coalesce((
        SELECT s.next_ms
        FROM ffx_schedule AS s
        WHERE s.next_ms >= @from_ms::bigint
        ORDER BY s.next_ms
        LIMIT 1
    ), 0)::bigint AS next_ms,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms;

-- name: PutSchedules :exec
-- PutSchedules creates schedules, and changes existing ones with the same names. An equal one is left alone. If the
-- times have not changed, the next time stays. A paused schedule stays paused, unless paused as vanished.
--
-- Used by: schedule.Put, schedule.Declare.
-- Locks: schedules waits (in array order). The caller sorts by name.
WITH input AS (
    SELECT
        unnest(@names::text[]) AS name,
        unnest(@crons::text[]) AS cron,
        unnest(@time_zones::text[]) AS time_zone,
        unnest(@everys_ms::bigint[]) AS every_ms,
        unnest(@jitters_ms::bigint[]) AS jitter_ms,
        unnest(@starts_ms::bigint[]) AS start_ms,
        unnest(@ends_ms::bigint[]) AS end_ms,
        unnest(@missed::text[]) AS missed,
        unnest(@windows_ms::bigint[]) AS window_ms,
        unnest(@overlap_rules::text[]) AS overlap,
        unnest(@kinds::text[]) AS kind,
        unnest(@lane_ids::text[]) AS lane_id,
        unnest(@payloads::bytea[]) AS payload,
        unnest(@payload_encodings::text[]) AS payload_encoding,
        unnest(@priorities::integer[]) AS priority,
        unnest(@creators::text[]) AS creator,
        unnest(@policies::text[]) AS policy,
        unnest(@tags::text[]) AS tags,
        unnest(@unique_works::text[]) AS unique_work,
        unnest(@sequences::text[]) AS sequence,
        unnest(@budget_ids::text[]) AS budget_ids,
        unnest(@quota_policy_ids::uuid[]) AS quota_policy_id,
        unnest(@limits::text[]) AS limits,
        unnest(@fairs::text[]) AS fair,
        unnest(@nexts_ms::bigint[]) AS next_ms,
        unnest(@ticks_ms::bigint[]) AS tick_ms
)
INSERT INTO ffx_schedule AS s (
    namespace, name, declared_by, cron, time_zone, every_ms, jitter_ms, start_ms, end_ms, missed, window_ms, overlap,
    kind, lane_id, payload, payload_encoding, priority, creator, policy, tags, unique_work, sequence, budget_ids,
    quota_policy_id, limits, fair, next_ms, tick_ms, pause_reason, paused_as_vanished, last_outcome, last_error, recent, created_at_ms,
    changed_at_ms
)
SELECT
    @namespace::text,
    i.name,
    @declared_by::text,
    i.cron,
    i.time_zone,
    i.every_ms,
    i.jitter_ms,
    i.start_ms,
    i.end_ms,
    i.missed,
    i.window_ms,
    i.overlap,
    i.kind,
    i.lane_id,
    i.payload,
    i.payload_encoding,
    i.priority,
    i.creator,
    i.policy,
    i.tags::jsonb,
    nullif(i.unique_work, '')::jsonb,
    nullif(i.sequence, '')::jsonb,
    CASE WHEN i.budget_ids <> '' THEN string_to_array(i.budget_ids, ',')::uuid[] END,
    i.quota_policy_id,
    nullif(i.limits, '')::jsonb,
    nullif(i.fair, '')::jsonb,
    nullif(i.next_ms, 0),
    nullif(i.tick_ms, 0),
    '',
    false,
    '',
    '',
    '',
    @now_ms::bigint,
    @now_ms::bigint
FROM input AS i
ON CONFLICT (namespace, name) DO UPDATE
SET
    declared_by = excluded.declared_by,
    (cron, time_zone, every_ms, jitter_ms, start_ms, end_ms)
        = (excluded.cron, excluded.time_zone, excluded.every_ms, excluded.jitter_ms, excluded.start_ms, excluded.end_ms),
    missed = excluded.missed,
    window_ms = excluded.window_ms,
    overlap = excluded.overlap,
    kind = excluded.kind,
    (lane_id, payload, payload_encoding, priority, creator, policy, tags)
        = (excluded.lane_id, excluded.payload, excluded.payload_encoding, excluded.priority, excluded.creator, excluded.policy, excluded.tags),
    (unique_work, sequence, budget_ids, quota_policy_id, limits, fair)
        = (excluded.unique_work, excluded.sequence, excluded.budget_ids, excluded.quota_policy_id, excluded.limits, excluded.fair),
    changed_at_ms = excluded.changed_at_ms,
    paused_at_ms = CASE WHEN NOT s.paused_as_vanished THEN s.paused_at_ms END,
    pause_reason = CASE WHEN s.paused_as_vanished THEN '' ELSE s.pause_reason END,
    paused_as_vanished = false,
    tick_ms = CASE
        WHEN s.paused_as_vanished THEN excluded.tick_ms
        WHEN (s.cron, s.time_zone, s.every_ms, s.jitter_ms, s.start_ms, s.end_ms)
            = (excluded.cron, excluded.time_zone, excluded.every_ms, excluded.jitter_ms, excluded.start_ms, excluded.end_ms)
            THEN s.tick_ms
        ELSE excluded.tick_ms
    END,
    next_ms = CASE
        WHEN s.paused_as_vanished THEN excluded.next_ms
        WHEN s.paused_at_ms IS NOT NULL THEN NULL
        WHEN (s.cron, s.time_zone, s.every_ms, s.jitter_ms, s.start_ms, s.end_ms)
            = (excluded.cron, excluded.time_zone, excluded.every_ms, excluded.jitter_ms, excluded.start_ms, excluded.end_ms)
            THEN s.next_ms
        WHEN s.queued_ms IS NOT NULL THEN excluded.changed_at_ms
        ELSE excluded.next_ms
    END
WHERE
    s.paused_as_vanished
    OR (
        s.declared_by, s.cron, s.time_zone, s.every_ms, s.jitter_ms, s.start_ms, s.end_ms, s.missed, s.window_ms, s.overlap,
        s.kind, s.lane_id, s.payload, s.payload_encoding, s.priority, s.creator, s.policy, s.tags,
        s.unique_work, s.sequence, s.budget_ids, s.quota_policy_id, s.limits, s.fair
    ) IS DISTINCT FROM (
        excluded.declared_by, excluded.cron, excluded.time_zone, excluded.every_ms, excluded.jitter_ms, excluded.start_ms,
        excluded.end_ms, excluded.missed, excluded.window_ms, excluded.overlap, excluded.kind, excluded.lane_id,
        excluded.payload, excluded.payload_encoding, excluded.priority, excluded.creator, excluded.policy, excluded.tags,
        excluded.unique_work, excluded.sequence, excluded.budget_ids, excluded.quota_policy_id, excluded.limits, excluded.fair
    );

-- name: LockSchedule :one
-- LockSchedule locks a schedule and returns it. No row: the schedule does not exist.
--
-- Passages: schedule_columns.
-- Used by: schedule.Resume, schedule.Trigger.
-- Locks: schedules waits (FOR NO KEY UPDATE).
SELECT
    -- All columns of ffx_schedule, in the order of the table: the generated row is the table's.
    s.namespace,
    s.name,
    s.declared_by,
    s.cron,
    s.time_zone,
    s.every_ms,
    s.jitter_ms,
    s.start_ms,
    s.end_ms,
    s.missed,
    s.window_ms,
    s.overlap,
    s.kind,
    s.lane_id,
    s.payload,
    s.payload_encoding,
    s.priority,
    s.creator,
    s.policy,
    s.tags,
    s.unique_work,
    s.sequence,
    s.budget_ids,
    s.quota_policy_id,
    s.limits,
    s.fair,
    s.next_ms,
    s.tick_ms,
    s.queued_ms,
    s.paused_at_ms,
    s.pause_reason,
    s.paused_as_vanished,
    s.last_tick_ms,
    s.last_at_ms,
    s.last_outcome,
    s.last_error,
    s.last_partition_key,
    s.last_execution_id,
    s.recent,
    s.created_at_ms,
    s.changed_at_ms
FROM ffx_schedule AS s
WHERE
    s.namespace = @namespace
    AND s.name = @name
FOR NO KEY UPDATE;

-- name: LockDueSchedules :many
-- LockDueSchedules locks and returns the due ones among the given schedules: their times may change before a tick is
-- acted on.
--
-- Passages: schedule_columns.
-- Used by: schedule.Put, schedule.Declare.
-- Locks: schedules waits (FOR NO KEY UPDATE, in array order). The caller sorts by name.
WITH input AS (
    SELECT unnest(@names::text[]) AS name
)
SELECT
    -- All columns of ffx_schedule, in the order of the table: the generated row is the table's.
    s.namespace,
    s.name,
    s.declared_by,
    s.cron,
    s.time_zone,
    s.every_ms,
    s.jitter_ms,
    s.start_ms,
    s.end_ms,
    s.missed,
    s.window_ms,
    s.overlap,
    s.kind,
    s.lane_id,
    s.payload,
    s.payload_encoding,
    s.priority,
    s.creator,
    s.policy,
    s.tags,
    s.unique_work,
    s.sequence,
    s.budget_ids,
    s.quota_policy_id,
    s.limits,
    s.fair,
    s.next_ms,
    s.tick_ms,
    s.queued_ms,
    s.paused_at_ms,
    s.pause_reason,
    s.paused_as_vanished,
    s.last_tick_ms,
    s.last_at_ms,
    s.last_outcome,
    s.last_error,
    s.last_partition_key,
    s.last_execution_id,
    s.recent,
    s.created_at_ms,
    s.changed_at_ms
FROM input AS i
CROSS JOIN LATERAL (
    SELECT t.*
    FROM ffx_schedule AS t
    WHERE
        t.namespace = @namespace::text
        AND t.name = i.name
        AND t.next_ms <= @now_ms::bigint
    FOR NO KEY UPDATE
) AS s;

-- name: LockDeclaredSchedules :many
-- LockDeclaredSchedules locks the schedules of a set, and others with the given names, and returns which ones the set
-- declares (declared).
--
-- Used by: schedule.Declare.
-- Locks: schedules waits (FOR UPDATE, by name).
WITH input AS MATERIALIZED (
    SELECT n.name
    FROM (
        SELECT unnest(@names::text[]) COLLATE "C" AS name
        UNION
        SELECT t.name
        FROM ffx_schedule AS t
        WHERE
            t.namespace = @namespace::text
            AND t.declared_by = @declared_by::text
            AND t.declared_by <> ''
    ) AS n
    ORDER BY n.name
)
SELECT
    s.name,
    s.declared::boolean AS declared
FROM input AS i
CROSS JOIN LATERAL (
    -- Looked up one by one: the condition on many names reads all schedules of the namespace.
    SELECT
        t.name,
        t.declared_by = @declared_by::text AS declared
    FROM ffx_schedule AS t
    WHERE
        t.namespace = @namespace::text
        AND t.name = i.name
    FOR UPDATE
) AS s;

-- name: DropSchedules :execrows
-- DropSchedules deletes schedules. Their executions stay.
--
-- Used by: schedule.Delete, schedule.Declare.
-- Locks: schedules waits (DELETE).
DELETE FROM ffx_schedule AS s
WHERE
    s.namespace = @namespace::text
    AND s.name = ANY (@names::text[]);

-- name: PauseSchedules :execrows
-- PauseSchedules pauses schedules; a waiting tick is dropped. A paused one keeps its instant, and gets the reason. As
-- vanished, only running schedules are paused.
--
-- Used by: schedule.Pause, schedule.Declare.
-- Locks: schedules waits (UPDATE).
UPDATE ffx_schedule AS s
SET
    paused_at_ms = coalesce(s.paused_at_ms, ffx_now_ms(sqlc.narg(now_ms))),
    pause_reason = @reason::text,
    paused_as_vanished = sqlc.arg(vanished)::boolean,
    next_ms = NULL,
    queued_ms = NULL
WHERE
    s.namespace = @namespace::text
    AND s.name = ANY (@names::text[])
    AND (NOT sqlc.arg(vanished)::boolean OR s.paused_at_ms IS NULL);

-- name: GetSchedule :one
-- GetSchedule reads a schedule. No row: the schedule does not exist.
--
-- Passages: schedule_columns.
-- Used by: schedule.Describe, schedule.Backfill.
-- Locks: none.
SELECT
    -- All columns of ffx_schedule, in the order of the table: the generated row is the table's.
    s.namespace,
    s.name,
    s.declared_by,
    s.cron,
    s.time_zone,
    s.every_ms,
    s.jitter_ms,
    s.start_ms,
    s.end_ms,
    s.missed,
    s.window_ms,
    s.overlap,
    s.kind,
    s.lane_id,
    s.payload,
    s.payload_encoding,
    s.priority,
    s.creator,
    s.policy,
    s.tags,
    s.unique_work,
    s.sequence,
    s.budget_ids,
    s.quota_policy_id,
    s.limits,
    s.fair,
    s.next_ms,
    s.tick_ms,
    s.queued_ms,
    s.paused_at_ms,
    s.pause_reason,
    s.paused_as_vanished,
    s.last_tick_ms,
    s.last_at_ms,
    s.last_outcome,
    s.last_error,
    s.last_partition_key,
    s.last_execution_id,
    s.recent,
    s.created_at_ms,
    s.changed_at_ms
FROM ffx_schedule AS s
WHERE
    s.namespace = @namespace
    AND s.name = @name;

-- name: ListSchedules :many
-- ListSchedules pages through the schedules in byte order of namespace and name, strictly after one.
--
-- Passages: schedule_columns.
-- Used by: schedule.All.
-- Locks: none.
SELECT
    -- All columns of ffx_schedule, in the order of the table: the generated row is the table's.
    s.namespace,
    s.name,
    s.declared_by,
    s.cron,
    s.time_zone,
    s.every_ms,
    s.jitter_ms,
    s.start_ms,
    s.end_ms,
    s.missed,
    s.window_ms,
    s.overlap,
    s.kind,
    s.lane_id,
    s.payload,
    s.payload_encoding,
    s.priority,
    s.creator,
    s.policy,
    s.tags,
    s.unique_work,
    s.sequence,
    s.budget_ids,
    s.quota_policy_id,
    s.limits,
    s.fair,
    s.next_ms,
    s.tick_ms,
    s.queued_ms,
    s.paused_at_ms,
    s.pause_reason,
    s.paused_as_vanished,
    s.last_tick_ms,
    s.last_at_ms,
    s.last_outcome,
    s.last_error,
    s.last_partition_key,
    s.last_execution_id,
    s.recent,
    s.created_at_ms,
    s.changed_at_ms
FROM ffx_schedule AS s
WHERE (s.namespace, s.name) > (@after_namespace::text, @after_name::text)
ORDER BY
    s.namespace,
    s.name
LIMIT @page_size::integer;
