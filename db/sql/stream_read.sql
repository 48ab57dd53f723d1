-- name: ReadStreams :many
-- ReadStreams returns, for each attempt, the newest position of the stream, and whether and how the attempt has ended;
-- ord (from 0) is the input position. No row for an item: the execution does not exist. An attempt not begun yet has
-- neither a position nor an end. next_attempt: the following one, or -1.
--
-- A reader that also lists frames does so in a later statement: then a stream seen as ended here has all frames there.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach, stream.Count, stream.Read,
-- stream.Tail.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    e.lifecycle_phase,
    e.public_state,
    coalesce(e.terminal_at_ms, 0)::bigint AS execution_terminal_at_ms,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    num_nonnulls(a.attempt_index)::integer AS attempts,
    coalesce(a.terminal_at_ms, 0)::bigint AS terminal_at_ms,
    coalesce(a.outcome, '')::text AS outcome,
    coalesce(a.ffx_stream_ts_ms, -1)::bigint AS ts_ms,
    coalesce(a.ffx_stream_seq, -1)::integer AS seq,
    coalesce(a.ffx_stream_frames, 0)::bigint AS frames,
    coalesce(a.ffx_stream_durable, 0)::bigint AS durable,
    coalesce(n.attempt_index, -1)::integer AS next_attempt,
    coalesce(n.started_at_ms, 0)::bigint AS next_started_at_ms
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.lifecycle_phase,
        t.public_state,
        t.terminal_at_ms,
        t.cancellation_reason
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
LEFT JOIN LATERAL (
    SELECT
        t.attempt_index,
        -- FlowFabric keeps the end of an attempt claimed again.
        CASE WHEN t.lease_expires_at_ms IS NULL THEN t.terminal_at_ms END AS terminal_at_ms,
        t.outcome,
        t.ffx_stream_ts_ms,
        t.ffx_stream_seq,
        t.ffx_stream_frames,
        t.ffx_stream_durable
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index = i.attempt_index
    LIMIT 1
) AS a ON true
LEFT JOIN LATERAL (
    SELECT
        t.attempt_index,
        t.started_at_ms
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index > i.attempt_index
    ORDER BY t.attempt_index
    LIMIT 1
) AS n ON true;

-- name: ListFrames :many
-- ListFrames lists frames of the streams of attempts, in the order of their ids: of each stream at most its size,
-- behind one id and up to another; ord (from 0) is the input position.
--
-- Used by: stream.Read, stream.Tail.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@after_ts_ms::bigint[]) AS after_ts_ms,
        unnest(@after_seqs::integer[]) AS after_seq,
        unnest(@through_ts_ms::bigint[]) AS through_ts_ms,
        unnest(@through_seqs::integer[]) AS through_seq,
        unnest(@skip_best_effort::boolean[]) AS skip_best_effort,
        unnest(@sizes::integer[]) AS size,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    f.ts_ms,
    f.seq,
    f.mode,
    f.fields,
    coalesce(f.ffx_lease_epoch, 0)::bigint AS lease_epoch,
    coalesce(f.ffx_number, 0)::bigint AS number,
    coalesce(f.ffx_durable, 0)::bigint AS durable
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.ts_ms,
        t.seq,
        t.mode,
        t.fields,
        t.ffx_lease_epoch,
        t.ffx_number,
        t.ffx_durable
    FROM ff_stream_frame AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index = i.attempt_index
        AND (t.ts_ms, t.seq) > (i.after_ts_ms, i.after_seq)
        AND (t.ts_ms, t.seq) <= (i.through_ts_ms, i.through_seq)
        AND (t.mode <> 'best_effort' OR NOT i.skip_best_effort)
    ORDER BY
        t.ts_ms,
        t.seq
    LIMIT i.size
) AS f
ORDER BY
    i.ord,
    f.ts_ms,
    f.seq;
