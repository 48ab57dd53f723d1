-- name: EnsureConsumer :execrows
-- EnsureConsumer creates a named consumer at an event. No row: the consumer exists already, and stays unchanged.
--
-- Used by: events.HandleWith, events.HandleBatches.
-- Locks: consumers waits (the key, while another transaction inserts the consumer).
INSERT INTO ffx_outbox_consumer (outbox, consumer, event_id, updated_at_ms)
VALUES (
    @outbox::text,
    @consumer::text,
    @event_id::bigint,
    ffx_now_ms(sqlc.narg(now_ms))
)
ON CONFLICT (outbox, consumer) DO NOTHING;

-- name: TakeConsumer :one
-- TakeConsumer extends holder's hold on a consumer by hold_ms, or takes a free consumer. ours: holder has the consumer
-- now. Otherwise held_ms is how long another holder keeps the consumer, 0 if the row is locked. A consumer holder had
-- at seen_event_id moves to event_id. No row: there is no such consumer. failing_event_id is 0 if no event fails.
--
-- Used by: events.HandleWith, events.HandleBatches.
-- Locks: consumers skips (FOR UPDATE, then the UPDATE).
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
free AS (
    -- The row, if holder has the consumer or the consumer is free.
    SELECT o.outbox
    FROM ffx_outbox_consumer AS o
    WHERE
        o.outbox = @outbox::text
        AND o.consumer = @consumer::text
        AND (
            o.holder = @holder::text
            OR o.holder IS NULL
            OR o.held_until_ms <= (SELECT now_ms FROM clock)
        )
    FOR UPDATE SKIP LOCKED
),
taken AS (
    -- The row, updated.
    UPDATE ffx_outbox_consumer AS o
    SET
        event_id = CASE
            WHEN o.holder = @holder::text AND o.event_id = @seen_event_id::bigint THEN greatest(@event_id::bigint, o.event_id)
            ELSE o.event_id
        END,
        holder = @holder::text,
        held_until_ms = (SELECT now_ms FROM clock) + @hold_ms::bigint,
        updated_at_ms = (SELECT now_ms FROM clock)
    FROM free AS f
    WHERE
        o.outbox = f.outbox
        AND o.consumer = @consumer::text
    RETURNING o.event_id, o.failing_event_id, o.tries, o.next_try_at_ms
)
SELECT
    (t.event_id IS NOT NULL)::boolean AS ours,
    coalesce(t.event_id, o.event_id)::bigint AS event_id,
    coalesce(t.failing_event_id, 0)::bigint AS failing_event_id,
    coalesce(t.tries, 0)::integer AS tries,
    greatest(coalesce(t.next_try_at_ms, 0) - (SELECT now_ms FROM clock), 0)::bigint AS next_try_ms,
    CASE
        WHEN o.holder = @holder::text THEN 0
        ELSE greatest(o.held_until_ms - (SELECT now_ms FROM clock), 0)
    END::bigint AS held_ms
FROM ffx_outbox_consumer AS o
LEFT JOIN taken AS t ON true
WHERE
    o.outbox = @outbox::text
    AND o.consumer = @consumer::text;

-- name: LockConsumer :one
-- LockConsumer locks holder's consumer at an event, for the transaction of the handler. No row: another holder has the
-- consumer, the consumer was moved, or the row is locked.
--
-- Used by: events.HandleWith, events.HandleBatches.
-- Locks: consumers skips (FOR UPDATE).
SELECT o.tries
FROM ffx_outbox_consumer AS o
WHERE
    o.outbox = @outbox::text
    AND o.consumer = @consumer::text
    AND o.holder = @holder::text
    AND o.event_id = @event_id::bigint
FOR UPDATE SKIP LOCKED;

-- name: AdvanceConsumer :execrows
-- AdvanceConsumer moves a consumer, locked by LockConsumer, to the last event the handler finished, and extends the
-- hold by hold_ms.
--
-- Used by: events.HandleWith, events.HandleBatches.
-- Locks: consumers held (UPDATE).
UPDATE ffx_outbox_consumer AS o
SET
    event_id = @to_event_id::bigint,
    held_until_ms = ffx_now_ms(sqlc.narg(now_ms)) + @hold_ms::bigint,
    updated_at_ms = ffx_now_ms(sqlc.narg(now_ms)),
    failing_event_id = NULL,
    tries = 0,
    failed_at_ms = NULL,
    next_try_at_ms = NULL,
    last_error = NULL
WHERE
    o.outbox = @outbox::text
    AND o.consumer = @consumer::text
    AND o.holder = @holder::text
    AND o.event_id = @event_id::bigint;

-- name: NoteFailedTry :execrows
-- NoteFailedTry counts a failed try at a single event, the first one for the consumer to handle, after tries_before
-- others. No row: the consumer has moved, another holder has counted in the meantime, or the row is locked.
--
-- Used by: events.HandleWith, events.HandleBatches.
-- Locks: consumers skips (FOR UPDATE, then the UPDATE).
UPDATE ffx_outbox_consumer AS o
SET
    failing_event_id = @failing_event_id::bigint,
    tries = @tries::integer,
    failed_at_ms = ffx_now_ms(sqlc.narg(now_ms)),
    next_try_at_ms = ffx_now_ms(sqlc.narg(now_ms)) + @pause_ms::bigint,
    last_error = @last_error::text
FROM (
    SELECT l.outbox
    FROM ffx_outbox_consumer AS l
    WHERE
        l.outbox = @outbox::text
        AND l.consumer = @consumer::text
        AND l.event_id = @event_id::bigint
        AND (
            CASE
                WHEN l.failing_event_id = @failing_event_id::bigint THEN l.tries
                ELSE 0
            END
        ) = @tries_before::integer
    FOR UPDATE SKIP LOCKED
) AS f
WHERE
    o.outbox = f.outbox
    AND o.consumer = @consumer::text;

-- name: SetAsideEvent :execrows
-- SetAsideEvent moves holder's consumer from from_event_id past an event, and stores the event with the known facts.
-- tries includes the last failed try; 0 for an event that cannot be read. No row: another holder has the consumer, the
-- consumer was moved, the other tries were cleared, or the row is locked.
--
-- Used by: events.HandleWith, events.HandleBatches.
-- Locks: consumers skips (FOR UPDATE, then the UPDATE); consumers waits (the row of the same event, stored before and
-- locked elsewhere).
WITH free AS (
    SELECT l.outbox
    FROM ffx_outbox_consumer AS l
    WHERE
        l.outbox = @outbox::text
        AND l.consumer = @consumer::text
        AND l.holder = @holder::text
        AND l.event_id = @from_event_id::bigint
        AND (
            @tries::integer = 0
            OR (
                CASE
                    WHEN l.failing_event_id = @event_id::bigint THEN l.tries
                    ELSE 0
                END
            ) = sqlc.arg(tries)::integer - 1
        )
    FOR UPDATE SKIP LOCKED
),
moved AS (
    UPDATE ffx_outbox_consumer AS o
    SET
        event_id = @event_id::bigint,
        held_until_ms = ffx_now_ms(sqlc.narg(now_ms)) + @hold_ms::bigint,
        updated_at_ms = ffx_now_ms(sqlc.narg(now_ms)),
        failing_event_id = NULL,
        tries = 0,
        failed_at_ms = NULL,
        next_try_at_ms = NULL,
        last_error = NULL
    FROM free AS f
    WHERE
        o.outbox = f.outbox
        AND o.consumer = @consumer::text
    RETURNING o.outbox, o.consumer
)
INSERT INTO ffx_outbox_set_aside AS s (outbox, consumer, event_id, event, tries, last_error, set_aside_at_ms)
SELECT
    m.outbox,
    m.consumer,
    @event_id::bigint,
    CAST(@event::text AS jsonb),
    @tries::integer,
    @last_error::text,
    ffx_now_ms(sqlc.narg(now_ms))
FROM moved AS m
ON CONFLICT (outbox, consumer, event_id) DO UPDATE SET
    event = excluded.event,
    tries = excluded.tries,
    last_error = excluded.last_error,
    set_aside_at_ms = excluded.set_aside_at_ms;

-- name: ReturnConsumer :exec
-- ReturnConsumer releases holder's consumer, so another process can take the consumer at once. A consumer at
-- seen_event_id moves to event_id.
--
-- Used by: events.HandleWith, events.HandleBatches.
-- Locks: consumers skips (FOR UPDATE, then the UPDATE).
UPDATE ffx_outbox_consumer AS o
SET
    event_id = CASE
        WHEN o.event_id = @seen_event_id::bigint THEN greatest(@event_id::bigint, o.event_id)
        ELSE o.event_id
    END,
    holder = NULL,
    held_until_ms = 0
FROM (
    SELECT l.outbox
    FROM ffx_outbox_consumer AS l
    WHERE
        l.outbox = @outbox::text
        AND l.consumer = @consumer::text
        AND l.holder = @holder::text
    FOR UPDATE SKIP LOCKED
) AS f
WHERE
    o.outbox = f.outbox
    AND o.consumer = @consumer::text;

-- name: ListConsumers :many
-- ListConsumers returns named consumers, by outbox and name, with the newest event and the floor of the outbox, and the
-- number of events set aside. failing_event_id is 0 if no event fails.
--
-- Used by: events.Consumers.
-- Locks: none. Spans partitions.
SELECT
    o.outbox,
    o.consumer,
    o.event_id,
    o.updated_at_ms,
    (o.updated_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - 604800000)::boolean AS stale,
    CASE
        WHEN o.held_until_ms > ffx_now_ms(sqlc.narg(now_ms)) THEN coalesce(o.holder, '')
        ELSE ''
    END::text AS holder,
    o.held_until_ms,
    CASE
        WHEN o.failing_event_id > o.event_id THEN o.failing_event_id
        ELSE 0
    END::bigint AS failing_event_id,
    o.tries,
    coalesce(o.failed_at_ms, 0)::bigint AS failed_at_ms,
    coalesce(o.next_try_at_ms, 0)::bigint AS next_try_at_ms,
    coalesce(o.last_error, '')::text AS last_error,
    coalesce(
        CASE o.outbox
            WHEN 'completion' THEN (SELECT c.event_id FROM ff_completion_event AS c ORDER BY c.event_id DESC LIMIT 1)
            WHEN 'lease' THEN (SELECT l.event_id FROM ff_lease_event AS l ORDER BY l.event_id DESC LIMIT 1)
            WHEN 'signal' THEN (SELECT s.event_id FROM ff_signal_event AS s ORDER BY s.event_id DESC LIMIT 1)
            WHEN 'operator' THEN (SELECT p.event_id FROM ff_operator_event AS p ORDER BY p.event_id DESC LIMIT 1)
        END,
        0
    )::bigint AS head_event_id,
    coalesce(
        (
            SELECT f.floor_event_id
            FROM ffx_outbox_floor AS f
            WHERE f.outbox = o.outbox
        ),
        0
    )::bigint AS floor_event_id,
    (
        SELECT count(*)
        FROM ffx_outbox_set_aside AS a
        WHERE
            a.outbox = o.outbox
            AND a.consumer = o.consumer
    )::bigint AS set_aside
FROM ffx_outbox_consumer AS o
ORDER BY
    o.outbox,
    o.consumer
LIMIT @page_size::integer;

-- name: ListSetAside :many
-- ListSetAside returns the events a consumer has set aside, ascending, after one.
--
-- Used by: events.SetAside.
-- Locks: none.
SELECT
    s.event_id,
    s.event,
    s.tries,
    s.last_error,
    s.set_aside_at_ms
FROM ffx_outbox_set_aside AS s
WHERE
    s.outbox = @outbox::text
    AND s.consumer = @consumer::text
    AND s.event_id > @after_event_id::bigint
ORDER BY s.event_id
LIMIT @page_size::integer;

-- name: GetOutboxEnds :one
-- GetOutboxEnds returns the newest event of an outbox, and the greatest deleted one; 0 if there is none.
--
-- Used by: events.HandleWith, events.HandleBatches, events.MoveConsumer.
-- Locks: none. Spans partitions.
SELECT
    coalesce(
        CASE @outbox::text
            WHEN 'completion' THEN (SELECT c.event_id FROM ff_completion_event AS c ORDER BY c.event_id DESC LIMIT 1)
            WHEN 'lease' THEN (SELECT l.event_id FROM ff_lease_event AS l ORDER BY l.event_id DESC LIMIT 1)
            WHEN 'signal' THEN (SELECT s.event_id FROM ff_signal_event AS s ORDER BY s.event_id DESC LIMIT 1)
            WHEN 'operator' THEN (SELECT p.event_id FROM ff_operator_event AS p ORDER BY p.event_id DESC LIMIT 1)
        END,
        0
    )::bigint AS head_event_id,
    coalesce(
        (
            SELECT f.floor_event_id
            FROM ffx_outbox_floor AS f
            WHERE f.outbox = @outbox::text
        ),
        0
    )::bigint AS floor_event_id;

-- name: MoveConsumer :execrows
-- MoveConsumer moves a consumer to an event, forwards or backwards, and clears the failing event. The holder continues
-- from there. No row: there is no such consumer.
--
-- Used by: events.MoveConsumer.
-- Locks: consumers waits (UPDATE).
UPDATE ffx_outbox_consumer AS o
SET
    event_id = @event_id::bigint,
    updated_at_ms = ffx_now_ms(sqlc.narg(now_ms)),
    failing_event_id = NULL,
    tries = 0,
    failed_at_ms = NULL,
    next_try_at_ms = NULL,
    last_error = NULL
WHERE
    o.outbox = @outbox::text
    AND o.consumer = @consumer::text;

-- name: RemoveConsumer :execrows
-- RemoveConsumer deletes a consumer. No row: there is none.
--
-- Used by: events.RemoveConsumer.
-- Locks: consumers waits (DELETE).
DELETE FROM ffx_outbox_consumer AS o
WHERE
    o.outbox = @outbox::text
    AND o.consumer = @consumer::text;

-- name: ForgetSetAside :execrows
-- ForgetSetAside deletes one skipped event of a consumer, or with 0 all.
--
-- Used by: events.ForgetSetAside, events.RemoveConsumer.
-- Locks: consumers waits (DELETE).
DELETE FROM ffx_outbox_set_aside AS s
WHERE
    s.outbox = @outbox::text
    AND s.consumer = @consumer::text
    AND (@event_id::bigint = 0 OR s.event_id = @event_id::bigint);

-- name: DropSetAside :one
-- DropSetAside deletes an event a consumer has set aside, and returns the event. No row: there is no such event, or the
-- row is locked.
--
-- Used by: events.RetrySetAside.
-- Locks: consumers skips (FOR UPDATE, then the DELETE).
DELETE FROM ffx_outbox_set_aside AS s
USING (
    SELECT l.event_id
    FROM ffx_outbox_set_aside AS l
    WHERE
        l.outbox = @outbox::text
        AND l.consumer = @consumer::text
        AND l.event_id = @event_id::bigint
    FOR UPDATE SKIP LOCKED
) AS f
WHERE
    s.outbox = @outbox::text
    AND s.consumer = @consumer::text
    AND s.event_id = f.event_id
RETURNING s.event;

-- name: ListStaleConsumers :many
-- ListStaleConsumers returns the named consumers trimming no longer respects, because no process has worked for the
-- consumer for a week.
--
-- Used by: upkeep.TrimOutboxes.
-- Locks: none.
SELECT
    o.outbox,
    o.consumer,
    o.event_id,
    o.updated_at_ms
FROM ffx_outbox_consumer AS o
WHERE o.updated_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - 604800000
ORDER BY
    o.outbox,
    o.consumer
LIMIT 100;
