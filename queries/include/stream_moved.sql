-- The position of a stream after an append; a: the attempt. Ids never go back: an earlier clock keeps the millisecond,
-- and a full one moves to the next.
ffx_stream_ts_ms = CASE
    WHEN a.ffx_stream_ts_ms >= ${now} AND a.ffx_stream_seq > 2147483647 - ${frames} THEN a.ffx_stream_ts_ms + 1
    WHEN a.ffx_stream_ts_ms >= ${now} THEN a.ffx_stream_ts_ms
    ELSE ${now}
END,
ffx_stream_seq = CASE
    WHEN a.ffx_stream_ts_ms >= ${now} AND a.ffx_stream_seq <= 2147483647 - ${frames} THEN a.ffx_stream_seq + ${frames}
    ELSE ${frames} - 1
END,
ffx_stream_frames = coalesce(a.ffx_stream_frames, 0) + ${frames},
ffx_stream_durable = coalesce(a.ffx_stream_durable, 0) + ${durable}
