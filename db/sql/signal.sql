-- name: DeliverSignal :one
-- DeliverSignal delivers a signal to a waitpoint, or to a wait for the signal's name. result is the outcome: accepted,
-- with the effect and the lane with work to claim now; duplicate, with the id of the earlier signal; or the reason of a
-- refusal.
--
-- Used by: engine.Signal, engine.SignalWaitpoint.
-- Locks: L1 waits (the execution FOR NO KEY UPDATE); L2 new (the step of an ended wait); L5 waits (the waitpoint FOR
-- UPDATE); L7 new.
SELECT
    coalesce(d.delivered ->> 'result', '')::text AS result,
    coalesce(d.delivered ->> 'signal_id', '')::text AS signal_id,
    coalesce(d.delivered ->> 'effect', '')::text AS effect,
    coalesce(d.delivered ->> 'lane', '')::text AS lane
FROM (
    SELECT ffx_deliver(
        @partition_key::smallint, @execution_id::uuid, sqlc.narg(waitpoint_id)::uuid, sqlc.narg(token_hash)::bytea,
        sqlc.arg(signal)::text::jsonb, sqlc.narg(payload)::bytea, @dedup_ttl_ms::bigint, sqlc.narg(resume_delay_ms)::bigint,
        sqlc.narg(max_signals)::bigint, sqlc.narg(now_ms)::bigint
    ) AS delivered
    OFFSET 0
) AS d;

-- name: DeliverSignals :many
-- DeliverSignals is DeliverSignal by name for many signals, in array order; ord (from 0) is the input position. The
-- refusal of one has no effect on the others. The executions are sorted. Signals that end a wait for one signal are
-- delivered together, before the others.
--
-- Used by: engine.SignalEach.
-- Locks: L1 held; L2 new (the steps of ended waits); L5 waits (waitpoints FOR UPDATE); L7 new.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@signals::text[]) AS signal,
        unnest(@payloads::bytea[]) AS payload,
        unnest(@dedup_ttls_ms::bigint[]) AS dedup_ttl_ms,
        generate_series(0, cardinality(@execution_ids::uuid[]) - 1) AS ord
),
ended AS MATERIALIZED (
    -- The waits that signals have ended.
    SELECT
        d.place,
        d.id,
        d.lane
    FROM ffx_end_waits(
        @partition_keys::smallint[], @execution_ids::uuid[], (@signals::text[])::jsonb[], @payloads::bytea[],
        @dedup_ttls_ms::bigint[], sqlc.narg(now_ms)::bigint
    ) AS d (place, id, lane)
)
SELECT
    e.place::integer AS ord,
    'accepted'::text AS result,
    e.id::text AS signal_id,
    'satisfied'::text AS effect,
    e.lane::text AS lane
FROM ended AS e
UNION ALL
SELECT
    i.ord::integer AS ord,
    coalesce(d.delivered ->> 'result', '')::text AS result,
    coalesce(d.delivered ->> 'signal_id', '')::text AS signal_id,
    coalesce(d.delivered ->> 'effect', '')::text AS effect,
    coalesce(d.delivered ->> 'lane', '')::text AS lane
FROM input AS i
CROSS JOIN LATERAL (
    SELECT ffx_deliver(
        i.partition_key, i.execution_id, NULL, NULL, i.signal::jsonb, i.payload, i.dedup_ttl_ms, NULL, NULL,
        sqlc.narg(now_ms)::bigint
    ) AS delivered
    OFFSET 0
) AS d
WHERE i.ord NOT IN (SELECT e.place FROM ended AS e);

-- name: DeliverSignalTo :one
-- DeliverSignalTo is DeliverSignal by name to the execution with a business key. No row: no execution has the key.
--
-- Used by: engine.Signal.
-- Locks: L1 waits (the execution FOR NO KEY UPDATE); L2 new (the step of an ended wait); L5 waits (the waitpoint FOR
-- UPDATE); L7 new.
SELECT
    k.holder_partition_key,
    k.execution_id,
    coalesce(d.delivered ->> 'result', '')::text AS result,
    coalesce(d.delivered ->> 'signal_id', '')::text AS signal_id,
    coalesce(d.delivered ->> 'effect', '')::text AS effect,
    coalesce(d.delivered ->> 'lane', '')::text AS lane
FROM (
    SELECT
        t.holder_partition_key,
        t.execution_id
    FROM ffx_business_key AS t
    WHERE
        t.partition_key = @partition_key
        AND t.name = @name
        AND t.value = @value
        AND t.execution_id IS NOT NULL
    LIMIT 1
) AS k
CROSS JOIN LATERAL (
    SELECT ffx_deliver(
        k.holder_partition_key, k.execution_id, NULL, NULL,
        sqlc.arg(signal)::text::jsonb, sqlc.narg(payload)::bytea, @dedup_ttl_ms::bigint, NULL, NULL, sqlc.narg(now_ms)::bigint
    ) AS delivered
    OFFSET 0
) AS d;

-- name: TakeSignal :one
-- TakeSignal takes the oldest signal of a name kept for a later wait of an execution, with the payload. signal is null
-- if none is kept.
--
-- Used by: engine.TakeSignal.
-- Locks: L1 held; L5 waits (the waitpoint of the signal, UPDATE and DELETE, which the job for expired waitpoints may
-- hold; the suspension is held by the execution's row). The caller holds the flow of a member, the execution and the
-- attempt, and has checked the lease. The same transaction may end the execution, so L0 comes before L1 here too.
SELECT ffx_take_signal(@partition_key::smallint, @execution_id::uuid, @name::text) AS signal;
