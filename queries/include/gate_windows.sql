SELECT
    i.partition_key,
    i.gate_id,
    i.page_size,
    i.after_ms,
    i.after_execution_id,
    i.window_ms > 0 AS has_window,
    greatest(c.now_ms - i.window_ms, 0) AS window_from_ms
FROM clock AS c
CROSS JOIN (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id,
        unnest(@window_ms::bigint[]) AS window_ms,
        unnest(@page_sizes::integer[]) AS page_size,
        unnest(@last_ms::bigint[]) AS after_ms,
        unnest(@last_execution_ids::uuid[]) AS after_execution_id
    LIMIT cardinality(@gate_ids::uuid[])
) AS i
