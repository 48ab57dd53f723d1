-- The shared values, rendered once. From here on the queue's trigger is switched off: see the trigger in the schema.
SELECT
    c.created_at_ms,
    string_to_array(@required_capabilities::text, ',') AS required_capabilities,
    nullif(sqlc.arg(policy)::text, '')::jsonb AS policy,
    CASE WHEN cardinality(@own_fields::text[]) = 0 THEN (sqlc.arg(raw_fields)::text || c.last_field)::jsonb END AS raw_fields,
    c.last_field,
    set_config('ffx.own_entries', pg_current_xact_id()::text, true) AS own_entries
FROM (
    SELECT
        n.created_at_ms,
        ',"last_mutation_at":"' || n.created_at_ms || '"}' AS last_field
    FROM (
        SELECT coalesce(nullif(sqlc.arg(created_at_ms)::bigint, 0), ffx_now_ms(sqlc.narg(now_ms))) AS created_at_ms
        OFFSET 0
    ) AS n
) AS c
