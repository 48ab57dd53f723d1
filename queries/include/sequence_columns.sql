-- The columns of a sequence s with the first member; size: up to 1,001 members are counted.
s.partition_key,
s.sequence_id,
s.namespace,
s.key,
s.stopped_at_ms,
coalesce(f.execution_partition_key, 0)::smallint AS first_partition_key,
coalesce(f.execution_id, '00000000-0000-0000-0000-000000000000')::uuid AS first_execution_id,
(
    SELECT count(*)
    FROM (
        SELECT
        FROM ffx_sequence_member AS m
        WHERE
            m.partition_key = s.partition_key
            AND m.sequence_id = s.sequence_id
        LIMIT 1001
    ) AS n
)::integer AS size
FROM ffx_sequence AS s
LEFT JOIN LATERAL (
SELECT
    m.execution_partition_key,
    m.execution_id
FROM ffx_sequence_member AS m
WHERE
    m.partition_key = s.partition_key
    AND m.sequence_id = s.sequence_id
ORDER BY m.place
LIMIT 1
) AS f ON true
