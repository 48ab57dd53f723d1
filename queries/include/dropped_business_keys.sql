DELETE FROM ffx_business_key AS k
USING (
    SELECT
        e.${id},
        e.name,
        e.value
    FROM (
        SELECT
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@${ids}::uuid[]) AS ${id}
    ) AS i
    CROSS JOIN LATERAL (
        SELECT
            t.${id},
            t.raw_fields #>> '{ffx_business_key,name}' AS name,
            t.raw_fields #>> '{ffx_business_key,value}' AS value
        FROM ${table} AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.${id} = i.${id}
            AND t.raw_fields ? 'ffx_business_key'
        LIMIT 1
    ) AS e
) AS h
WHERE
    k.partition_key = ANY (ARRAY[ffx_key_partition(h.name, h.value)])
    AND k.name = h.name
    AND k.value = h.value
    AND (k.${id} = h.${id}) IS TRUE;
