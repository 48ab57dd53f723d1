LEFT JOIN LATERAL (
    -- How many signals of a suspension s no wait has used yet, as an object by waitpoint key; NULL: none.
    SELECT jsonb_object_agg(k.waitpoint_key, k.signals) AS unused_signals
    FROM (
        SELECT
            m.waitpoint_key,
            count(*) AS signals
        FROM jsonb_each(CASE WHEN jsonb_typeof(s.member_map) = 'object' THEN s.member_map END) AS m (waitpoint_key, list)
        CROSS JOIN LATERAL jsonb_path_query(m.list, '$[*].signal_id') AS g (id)
        WHERE NOT s.satisfied_set ? (g.id #>> '{}')
        GROUP BY m.waitpoint_key
    ) AS k
) AS u ON true
