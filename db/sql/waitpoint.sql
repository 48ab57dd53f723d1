-- name: InsertWaitpoint :one
-- InsertWaitpoint opens a waitpoint of an execution that waits for nothing there yet, and signs the token with the
-- newest valid key. The server signs, so neither the token nor the secret is a parameter, which the server's log may
-- show. No row: there is no key to sign with.
--
-- Passages: signed_token.
-- Used by: engine.CreateWaitpoint.
-- Locks: L5 new. The caller holds the execution's row.
INSERT INTO ff_waitpoint_pending (
    partition_key, waitpoint_id, execution_id, token_kid, token, created_at_ms, expires_at_ms,
    waitpoint_key, state
)
SELECT
    @partition_key,
    @waitpoint_id,
    @execution_id,
    s.kid,
    s.token,
    @created_at_ms::bigint,
    @expires_at_ms::bigint,
    @waitpoint_key::text,
    'pending'
FROM (
    -- The newest valid key, and the token signed with the key for a waitpoint of an execution.
    SELECT
        k.kid,
        k.kid || ':' || ffx_signature(
            k.secret, concat_ws(':', k.kid, '{fp:' || @partition_key::smallint || '}', @execution_id::uuid, @waitpoint_id::uuid)
        ) AS token
    FROM ff_waitpoint_hmac AS k
    WHERE
        k.active
        AND octet_length(k.secret) = 32
        AND k.kid COLLATE "C" ~ '^[!-9;-~]{1,64}$'
    ORDER BY
        k.rotated_at_ms DESC,
        k.kid
    LIMIT 1
) AS s
RETURNING token;

-- name: GetOpenWaitpoint :one
-- GetOpenWaitpoint reads a signed waitpoint of an execution by key, with the token. No row: there is none, or its time
-- is over.
--
-- Used by: engine.CreateWaitpoint.
-- Locks: none.
SELECT
    w.waitpoint_id,
    w.token,
    w.expires_at_ms
FROM (
    SELECT
        t.waitpoint_id,
        t.token,
        t.expires_at_ms
    FROM ff_waitpoint_pending AS t
    WHERE
        t.partition_key = @partition_key
        AND t.execution_id = @execution_id
        AND t.waitpoint_key = @waitpoint_key
        AND t.token <> ''
        AND (t.expires_at_ms > @now_ms::bigint) IS NOT FALSE
    OFFSET 0
) AS w
ORDER BY w.waitpoint_id
LIMIT 1;

-- name: CountWaitpoints :one
-- CountWaitpoints counts the open waitpoints of an execution.
--
-- Used by: engine.CreateWaitpoint.
-- Locks: none.
SELECT count(*)
FROM ff_waitpoint_pending AS w
WHERE
    w.partition_key = @partition_key
    AND w.execution_id = @execution_id;

-- name: DropWaitpoint :execrows
-- DropWaitpoint closes a waitpoint without a wait, and drops the signals kept there. No row: the waitpoint is closed
-- already, its time is over, or it belongs to a wait. A place without a token is not closed: others may have signals
-- there.
--
-- Used by: engine.CloseWaitpoint.
-- Locks: L5 waits (the row, DELETE). The caller holds the execution's row.
DELETE FROM ff_waitpoint_pending AS w
WHERE
    w.partition_key = @partition_key
    AND w.waitpoint_id = @waitpoint_id
    AND w.execution_id = @execution_id
    AND w.state = 'pending'
    AND w.token <> '';

-- name: GetWaitpointToken :one
-- GetWaitpointToken reads the token of a waitpoint. No row: the waitpoint is closed, belongs to another execution, or
-- has none.
--
-- Used by: operator.WaitpointToken.
-- Locks: none.
SELECT w.token
FROM ff_waitpoint_pending AS w
WHERE
    w.partition_key = @partition_key
    AND w.waitpoint_id = @waitpoint_id
    AND w.execution_id = @execution_id
    AND w.token <> '';

-- name: ReissueToken :one
-- ReissueToken replaces the token of an open waitpoint by one the server signs with the newest valid key. No row: there
-- is no key, or the waitpoint is closed, belongs to another execution, or has no token.
--
-- Passages: signed_token.
-- Used by: operator.ReissueToken.
-- Locks: L1 held; L5 waits (the row, UPDATE).
UPDATE ff_waitpoint_pending AS w
SET
    token_kid = s.kid,
    token = s.token
FROM (
    -- The newest valid key, and the token signed with the key for a waitpoint of an execution.
    SELECT
        k.kid,
        k.kid || ':' || ffx_signature(
            k.secret, concat_ws(':', k.kid, '{fp:' || @partition_key::smallint || '}', @execution_id::uuid, @waitpoint_id::uuid)
        ) AS token
    FROM ff_waitpoint_hmac AS k
    WHERE
        k.active
        AND octet_length(k.secret) = 32
        AND k.kid COLLATE "C" ~ '^[!-9;-~]{1,64}$'
    ORDER BY
        k.rotated_at_ms DESC,
        k.kid
    LIMIT 1
) AS s
WHERE
    w.partition_key = @partition_key
    AND w.waitpoint_id = @waitpoint_id
    AND w.execution_id = @execution_id
    AND w.token <> ''
    AND (w.state = 'active' OR (w.expires_at_ms > @now_ms::bigint) IS NOT FALSE)
RETURNING w.token;

-- name: CountSignedWaitpoints :one
-- CountSignedWaitpoints counts the waitpoints some keys signed, among the first max_items open ones.
--
-- Used by: operator.RotateKey.
-- Locks: none. Spans partitions.
SELECT count(*) FILTER (WHERE w.token_kid = ANY (@kids::text[]))
FROM (
    SELECT p.token_kid
    FROM ff_waitpoint_pending AS p
    WHERE p.partition_key >= 0 -- of all: the scan goes along the key, and stops
    ORDER BY
        p.partition_key,
        p.waitpoint_id
    LIMIT @max_items::integer
) AS w;

-- name: ListWaitpoints :many
-- ListWaitpoints lists the open waitpoints of an execution, in the order of their ids, after one. An ended execution
-- has none. The token does not leave the database, only the beginning of the token's digest.
--
-- Used by: engine.ListWaitpoints.
-- Locks: none.
SELECT
    w.waitpoint_id,
    w.waitpoint_key,
    w.state,
    w.required_signal_names,
    w.created_at_ms,
    w.activated_at_ms,
    w.expires_at_ms,
    w.token_kid,
    left(split_part(w.token, ':', 2), 16)::text AS fingerprint,
    coalesce(jsonb_array_length(w.condition -> 'buffered_signals'), 0)::integer AS buffered
FROM (
    SELECT
        t.waitpoint_id,
        t.waitpoint_key,
        t.state,
        t.required_signal_names,
        t.created_at_ms,
        t.activated_at_ms,
        t.expires_at_ms,
        t.token_kid,
        t.token,
        t.condition
    FROM ff_waitpoint_pending AS t
    WHERE
        t.partition_key = @partition_key
        AND t.execution_id = @execution_id
        AND t.waitpoint_id > @after_waitpoint_id::uuid
    OFFSET 0
) AS w
WHERE
    EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = @partition_key
            AND e.execution_id = @execution_id
            AND e.lifecycle_phase NOT IN ('terminal', 'cancelled')
    )
ORDER BY w.waitpoint_id
LIMIT @page_size::integer;

-- name: ExpireWaitpoints :one
-- ExpireWaitpoints ends waitpoints at which nothing waited in time, the oldest first, and returns how many. Waitpoints
-- without signals are deleted. The others keep their signals for a later wait, without a token.
--
-- Used by: upkeep.ExpireWaitpoints.
-- Locks: L5 skips (waitpoint rows FOR UPDATE, then the UPDATE and the DELETE). Spans partitions.
WITH due AS (
    SELECT
        w.ctid::tid AS row_id,
        w.partition_key,
        w.waitpoint_id,
        w.condition IS NOT NULL AS keeps_signals
    FROM ff_waitpoint_pending AS w
    WHERE
        w.state = 'pending'
        AND w.expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ORDER BY w.expires_at_ms
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
),
kept AS (
    UPDATE ff_waitpoint_pending AS w
    SET
        token_kid = '',
        token = '',
        expires_at_ms = NULL
    FROM due AS d
    WHERE
        w.ctid = d.row_id
        AND w.partition_key = d.partition_key
        AND w.waitpoint_id = d.waitpoint_id
        AND d.keeps_signals
),
deleted AS (
    DELETE FROM ff_waitpoint_pending AS w
    USING due AS d
    WHERE
        w.ctid = d.row_id
        AND w.partition_key = d.partition_key
        AND w.waitpoint_id = d.waitpoint_id
        AND NOT d.keeps_signals
)
SELECT count(*) FROM due;

-- name: SweepWaitpoints :one
-- SweepWaitpoints sweeps waitpoints as SweepSuspensions sweeps suspensions, as soon as the execution has ended.
--
-- Passages: swept_waits.
-- Used by: upkeep.SweepWaits.
-- Locks: L5 skips (waitpoint rows FOR UPDATE, then the DELETE). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
page AS MATERIALIZED (
    -- The rows of the page.
    SELECT
        t.ctid::tid AS row_id,
        t.partition_key,
        t.waitpoint_id
    FROM ff_waitpoint_pending AS t
    WHERE (t.partition_key, t.waitpoint_id) > (@after_partition_key::smallint, @after_key::uuid)
    ORDER BY
        t.partition_key,
        t.waitpoint_id
    LIMIT @page_size::integer
),
ended AS (
    -- The rows whose executions ended long enough ago, or no longer exist.
    SELECT
        l.row_id,
        p.partition_key,
        p.waitpoint_id
    FROM page AS p
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS row_id
        FROM ff_waitpoint_pending AS t
        WHERE
            t.ctid = p.row_id
            AND t.partition_key = p.partition_key
            AND t.waitpoint_id = p.waitpoint_id
            AND (
                SELECT
                    e.lifecycle_phase IN ('terminal', 'cancelled')
                    AND (e.terminal_at_ms <= (SELECT now_ms FROM clock) - 0) IS TRUE
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
    DELETE FROM ff_waitpoint_pending AS t
    USING ended AS d
    WHERE
        t.ctid = d.row_id
        AND (t.partition_key = d.partition_key) IS TRUE
        AND t.waitpoint_id = d.waitpoint_id
    RETURNING t.partition_key
)
SELECT
    coalesce(z.partition_key, -1)::smallint AS last_partition_key,
    z.waitpoint_id::uuid AS last_key,
    (SELECT count(*) FROM page)::integer AS examined,
    (SELECT count(*) FROM deleted)::integer AS deleted
FROM clock
LEFT JOIN LATERAL (
    SELECT
        p.partition_key,
        p.waitpoint_id
    FROM page AS p
    ORDER BY
        p.partition_key DESC,
        p.waitpoint_id DESC
    LIMIT 1
) AS z ON true;
