-- name: AppendFrames :many
-- AppendFrames appends durable frames to the streams of attempts, for the holders of live leases; ord (from 0) is the
-- input position. Frames of an item are a slice of the arrays of frames, from first to last, and get consecutive ids.
-- No row for an item: the fence failed, the stream has another number of frames than asked for, or another transaction
-- holds the attempt or has just changed the row; no frame of the item was appended.
--
-- The update of the attempt compares the fence, orders the frames by the row lock and takes their ids. So ids of a
-- stream increase in the order of commits, and a reader behind an id misses none. Every loss of a lease changes the
-- attempt, except that FlowFabric may have changed the execution alone, which is read without a lock.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach.
-- Locks: L2 skips (attempt rows FOR NO KEY UPDATE, then the UPDATE; their frames are new).
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    -- The streams, with the places of their frames.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@lease_epochs::bigint[]) AS lease_epoch,
        unnest(@first_frames::integer[]) AS first_frame,
        unnest(@last_frames::integer[]) AS last_frame,
        -- Frames the stream must have; negative: any number.
        unnest(@behind::bigint[]) AS behind,
        unnest(@ords::integer[]) AS ord
    LIMIT cardinality(@execution_ids::uuid[])
),
frames AS MATERIALIZED (
    -- The fields of all frames, one row of arrays.
    SELECT
        @frame_types::text[] AS frame_types,
        @payloads::text[] AS payloads,
        @encodings::text[] AS encodings,
        @correlation_ids::text[] AS correlation_ids
),
moved AS (
    -- The attempts whose fence held, with the positions after their frames.
    UPDATE ff_attempt AS a
    SET
        -- include stream_moved: frames = (i.last_frame - i.first_frame + 1), durable = (i.last_frame - i.first_frame + 1), now = (SELECT now_ms FROM clock)
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            c.lifecycle_phase,
            c.ownership_state,
            c.attempt_index
        FROM ff_exec_core AS c
        WHERE
            c.partition_key = i.partition_key
            AND c.execution_id = i.execution_id
        LIMIT 1
    ) AS e
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS row_id
        FROM ff_attempt AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.attempt_index = i.attempt_index
            -- The fence, written to keep the planner from an index on the expiry.
            AND t.lease_epoch = i.lease_epoch
            AND t.lease_expires_at_ms > (SELECT now_ms FROM clock)
            AND (i.behind < 0 OR coalesce(t.ffx_stream_frames, 0) = i.behind)
            AND e.lifecycle_phase = 'active'
            AND e.ownership_state = 'leased' AND e.attempt_index = i.attempt_index
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ) AS t
    WHERE
        -- A row changed between snapshot and lock is not found by ctid and stays unchanged.
        a.ctid = t.row_id
        AND a.partition_key = i.partition_key
        AND a.execution_id = i.execution_id
        AND a.attempt_index = i.attempt_index
    RETURNING
        i.ord,
        i.first_frame,
        i.last_frame,
        a.partition_key,
        a.execution_id,
        a.attempt_index,
        a.lease_epoch,
        a.ffx_stream_ts_ms,
        a.ffx_stream_seq,
        a.ffx_stream_frames,
        a.ffx_stream_durable
),
appended AS (
    -- The frames. The place of a frame before the last one of the item is negative or 0.
    INSERT INTO ff_stream_frame (
        partition_key, execution_id, attempt_index, ts_ms, seq, mode, created_at_ms, ffx_lease_epoch, ffx_number,
        ffx_durable, fields
    )
    SELECT
        m.partition_key,
        m.execution_id,
        m.attempt_index,
        m.ffx_stream_ts_ms,
        m.ffx_stream_seq + f.place,
        'durable',
        m.ffx_stream_ts_ms,
        m.lease_epoch,
        m.ffx_stream_frames + f.place,
        m.ffx_stream_durable + f.place,
        -- include frame_fields
    FROM moved AS m
    CROSS JOIN frames AS r
    CROSS JOIN LATERAL (
        SELECT
            unnest((r.frame_types)[m.first_frame:m.last_frame]) AS frame_type,
            unnest((r.payloads)[m.first_frame:m.last_frame]) AS payload,
            unnest((r.encodings)[m.first_frame:m.last_frame]) AS encoding,
            unnest((r.correlation_ids)[m.first_frame:m.last_frame]) AS correlation_id,
            generate_series(m.first_frame - m.last_frame, 0) AS place
    ) AS f
)
SELECT
    m.ord::integer AS ord,
    m.ffx_stream_ts_ms::bigint AS ts_ms,
    m.ffx_stream_seq::integer AS seq,
    m.ffx_stream_frames::bigint AS frames,
    m.ffx_stream_durable::bigint AS durable
FROM moved AS m;

-- name: MoveStream :one
-- MoveStream takes the ids of frames InsertFrames then inserts. No row: the stream has another number of frames than
-- behind, which is negative for any number.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach.
-- Locks: L2 held (the attempt row, UPDATE). The caller has checked the lease.
UPDATE ff_attempt AS a
SET
    -- include stream_moved: frames = sqlc.arg(frames)::integer, durable = sqlc.arg(durable)::integer, now = ffx_now_ms(sqlc.narg(now_ms))
WHERE
    a.partition_key = @partition_key
    AND a.execution_id = @execution_id
    AND a.attempt_index = @attempt_index
    AND (sqlc.arg(behind)::bigint < 0 OR coalesce(a.ffx_stream_frames, 0) = sqlc.arg(behind)::bigint)
RETURNING
    a.ffx_stream_ts_ms::bigint AS ts_ms,
    a.ffx_stream_seq::integer AS seq,
    a.ffx_stream_frames::bigint AS frames,
    a.ffx_stream_durable::bigint AS durable;

-- name: InsertFrames :exec
-- InsertFrames inserts frames of any mode, with the ids MoveStream has taken. seq, number and durable come from
-- MoveStream's result; a frame's place is 0 for the last one and negative before.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach.
-- Locks: L2 new. The caller holds the attempt.
INSERT INTO ff_stream_frame (
    partition_key, execution_id, attempt_index, ts_ms, seq, mode, created_at_ms, ffx_lease_epoch, ffx_number, ffx_durable,
    fields
)
SELECT
    @partition_key,
    @execution_id,
    @attempt_index,
    @ts_ms,
    sqlc.arg(seq)::integer + f.place,
    f.mode,
    @ts_ms,
    @lease_epoch,
    sqlc.arg(number)::bigint + f.place,
    sqlc.arg(durable)::bigint + f.durable_place,
    -- include frame_fields
    || CASE WHEN f.summary_version = '' THEN '{}' ELSE jsonb_build_object('summary_version', f.summary_version) END
    || CASE WHEN f.ttl_ms = '' THEN '{}' ELSE jsonb_build_object('ttl_ms', f.ttl_ms) END
FROM (
    SELECT
        unnest(@frame_types::text[]) AS frame_type,
        unnest(@payloads::text[]) AS payload,
        unnest(@encodings::text[]) AS encoding,
        unnest(@correlation_ids::text[]) AS correlation_id,
        unnest(@modes::text[]) AS mode,
        unnest(@summary_versions::text[]) AS summary_version,
        unnest(@ttls_ms::text[]) AS ttl_ms,
        unnest(@durable_places::integer[]) AS durable_place,
        generate_series(1 - cardinality(sqlc.arg(modes)::text[]), 0) AS place
) AS f;
