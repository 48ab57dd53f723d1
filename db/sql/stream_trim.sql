-- name: GetStreamMeta :one
-- GetStreamMeta returns the rate of the best-effort frames of an attempt, and how many frames the stream has. There is
-- always a row; known is false if the attempt has written none.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach.
-- Locks: none. The caller holds the attempt.
SELECT
    num_nonnulls(m.attempt_index)::integer = 1 AS known,
    coalesce(m.ema_rate_hz, 0)::double precision AS rate_hz,
    coalesce(m.last_append_ts_ms, 0)::bigint AS last_ms,
    coalesce(m.ffx_kept, 0)::integer AS kept,
    coalesce(m.ffx_untrimmed, 0)::integer AS untrimmed
FROM (SELECT 1) AS one
LEFT JOIN ff_stream_meta AS m
    ON
        m.partition_key = @partition_key
        AND m.execution_id = @execution_id
        AND m.attempt_index = @attempt_index;

-- name: PutStreamMeta :exec
-- PutStreamMeta stores the rate of the best-effort frames of an attempt and, if excess or before_ms is positive,
-- deletes the oldest ones: as many as excess, and all older than before_ms. The scan begins after the last deleted one.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach.
-- Locks: L2 held (DELETE of frames, then the UPDATE). The caller holds the attempt.
WITH place AS (
    -- The id up to which such frames are deleted.
    SELECT
        coalesce(max(m.ffx_trimmed_ts_ms), -1) AS ts_ms,
        coalesce(max(m.ffx_trimmed_seq), -1) AS seq
    FROM ff_stream_meta AS m
    WHERE
        m.partition_key = @partition_key
        AND m.execution_id = @execution_id
        AND m.attempt_index = @attempt_index
),
cut AS (
    -- The id up to which frames are deleted now. No row: no frame is.
    SELECT
        c.ts_ms,
        c.seq
    FROM (
        SELECT
            o.ts_ms,
            o.seq
        FROM place AS p
        CROSS JOIN LATERAL (
            SELECT
                t.ts_ms,
                t.seq
            FROM ff_stream_frame AS t
            WHERE
                t.partition_key = @partition_key
                AND t.execution_id = @execution_id
                AND t.attempt_index = @attempt_index
                AND (t.ts_ms, t.seq) > (p.ts_ms, p.seq)
                AND t.mode = 'best_effort'
            ORDER BY
                t.ts_ms,
                t.seq
            LIMIT least(sqlc.arg(excess)::integer, 1)
            OFFSET greatest(sqlc.arg(excess)::integer - 1, 0)
        ) AS o
        UNION ALL
        SELECT
            sqlc.arg(before_ms)::bigint - 1,
            2147483647
        WHERE sqlc.arg(before_ms)::bigint > 0
    ) AS c
    ORDER BY
        c.ts_ms DESC,
        c.seq DESC
    LIMIT 1
),
trimmed AS (
    -- The deleted frames.
    DELETE FROM ff_stream_frame AS t
    USING
        place AS p,
        cut AS c
    WHERE
        t.partition_key = @partition_key
        AND t.execution_id = @execution_id
        AND t.attempt_index = @attempt_index
        AND (t.ts_ms, t.seq) > (p.ts_ms, p.seq)
        AND (t.ts_ms, t.seq) <= (c.ts_ms, c.seq)
        AND t.mode = 'best_effort'
    RETURNING t.seq
)
INSERT INTO ff_stream_meta AS m (
    partition_key, execution_id, attempt_index, ema_rate_hz, last_append_ts_ms, maxlen_applied_last, ffx_kept,
    ffx_untrimmed, ffx_trimmed_ts_ms, ffx_trimmed_seq
)
SELECT
    @partition_key,
    @execution_id,
    @attempt_index,
    @rate_hz,
    @ts_ms,
    @keep,
    sqlc.arg(kept)::integer - n.trimmed,
    sqlc.arg(untrimmed)::integer,
    c.ts_ms,
    c.seq
FROM (SELECT count(*)::integer AS trimmed FROM trimmed) AS n
LEFT JOIN cut AS c ON true
ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE SET
    ema_rate_hz = excluded.ema_rate_hz,
    last_append_ts_ms = excluded.last_append_ts_ms,
    maxlen_applied_last = excluded.maxlen_applied_last,
    ffx_kept = excluded.ffx_kept,
    ffx_untrimmed = excluded.ffx_untrimmed,
    ffx_trimmed_ts_ms = coalesce(excluded.ffx_trimmed_ts_ms, m.ffx_trimmed_ts_ms),
    ffx_trimmed_seq = coalesce(excluded.ffx_trimmed_seq, m.ffx_trimmed_seq);

-- name: TrimSummaryFrames :exec
-- TrimSummaryFrames deletes the oldest summary frames of an attempt, as many as excess. The scan begins after the last
-- deleted one.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach.
-- Locks: L2 held (DELETE of frames, then the UPDATE). The caller holds the attempt.
WITH cut AS (
    -- The ids between which such frames go.
    SELECT
        p.ts_ms AS after_ts_ms,
        p.seq AS after_seq,
        o.ts_ms,
        o.seq
    FROM (
        SELECT
            coalesce(s.ffx_trimmed_ts_ms, -1) AS ts_ms,
            coalesce(s.ffx_trimmed_seq, -1) AS seq
        FROM ff_stream_summary AS s
        WHERE
            s.partition_key = @partition_key
            AND s.execution_id = @execution_id
            AND s.attempt_index = @attempt_index
    ) AS p
    CROSS JOIN LATERAL (
        SELECT
            t.ts_ms,
            t.seq
        FROM ff_stream_frame AS t
        WHERE
            t.partition_key = @partition_key
            AND t.execution_id = @execution_id
            AND t.attempt_index = @attempt_index
            AND (t.ts_ms, t.seq) > (p.ts_ms, p.seq)
            AND t.mode = 'summary'
        ORDER BY
            t.ts_ms,
            t.seq
        LIMIT 1
        OFFSET sqlc.arg(excess)::integer - 1
    ) AS o
),
trimmed AS (
    -- The deleted frames.
    DELETE FROM ff_stream_frame AS t
    USING cut AS c
    WHERE
        t.partition_key = @partition_key
        AND t.execution_id = @execution_id
        AND t.attempt_index = @attempt_index
        AND (t.ts_ms, t.seq) > (c.after_ts_ms, c.after_seq)
        AND (t.ts_ms, t.seq) <= (c.ts_ms, c.seq)
        AND t.mode = 'summary'
    RETURNING t.seq
)
UPDATE ff_stream_summary AS s
SET
    ffx_kept = s.ffx_kept - (SELECT count(*)::integer FROM trimmed),
    ffx_trimmed_ts_ms = c.ts_ms,
    ffx_trimmed_seq = c.seq
FROM cut AS c
WHERE
    s.partition_key = @partition_key
    AND s.execution_id = @execution_id
    AND s.attempt_index = @attempt_index;

-- name: TrimDurableFrames :exec
-- TrimDurableFrames deletes the oldest durable frames of attempts: up to a number among the durable frames, and at most
-- page_size of each.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach.
-- Locks: L2 skips (frames FOR UPDATE, then the DELETE).
DELETE FROM ff_stream_frame AS t
USING (
    SELECT
        o.partition_key,
        o.execution_id,
        o.attempt_index,
        o.ts_ms,
        o.seq
    FROM (
        SELECT
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@execution_ids::uuid[]) AS execution_id,
            unnest(@attempt_indexes::integer[]) AS attempt_index,
            unnest(@numbers::bigint[]) AS number
        LIMIT cardinality(@execution_ids::uuid[])
    ) AS i
    CROSS JOIN LATERAL (
        SELECT
            f.partition_key,
            f.execution_id,
            f.attempt_index,
            f.ts_ms,
            f.seq,
            f.ffx_durable
        FROM ff_stream_frame AS f
        WHERE
            f.partition_key = i.partition_key
            AND f.execution_id = i.execution_id
            AND f.attempt_index = i.attempt_index
            AND (f.mode = 'durable') IS TRUE
            AND (f.ffx_durable <= i.number) IS TRUE
        ORDER BY
            f.ts_ms,
            f.seq
        LIMIT @page_size::integer
        FOR UPDATE SKIP LOCKED
    ) AS o
) AS o
WHERE
    t.partition_key = ANY (ARRAY[o.partition_key])
    AND t.execution_id = o.execution_id
    AND t.attempt_index = o.attempt_index
    AND t.ts_ms = o.ts_ms
    AND t.seq = o.seq;
