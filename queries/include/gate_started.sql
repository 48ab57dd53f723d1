LEFT JOIN LATERAL (
    -- When the execution of an admission u first started under the admission, since u.since_ms, NULL: not yet. For a
    -- resumed attempt only the last time is stored, which may be after the next admission. A claim sent before the
    -- admission, but able to see the admission, has stored an earlier start: of an attempt still leased, or leased
    -- until after the admission.
    SELECT min(
        CASE
            WHEN t.started_at_ms >= u.since_ms OR coalesce(t.ffx_resumed_at_ms, 0) < u.since_ms THEN t.started_at_ms
            ELSE least(t.ffx_resumed_at_ms, u.again_at_ms)
        END
    ) AS started_at_ms
    FROM ff_attempt AS t
    WHERE
        t.partition_key = u.execution_partition_key
        AND t.execution_id = u.execution_id
        AND u.started_at_ms IS NULL
        AND (t.started_at_ms < u.again_at_ms) IS NOT FALSE
        AND (
            greatest(t.started_at_ms, t.ffx_resumed_at_ms) >= u.since_ms
            OR t.started_at_ms >= u.since_ms - 60000
            AND (num_nulls(t.lease_expires_at_ms) = 0 OR t.terminal_at_ms >= u.since_ms)
        )
) AS a ON true
