WITH input AS (
    -- The flows the arrays partition_keys and flow_ids name.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
DELETE FROM ${table}
WHERE
    (partition_key = ANY (@partition_keys::smallint[])) IS TRUE
    AND (flow_id = ANY (@flow_ids::uuid[])) IS TRUE
    AND ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT t.ctid
            FROM ${table} AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
            OFFSET 0
        ) AS x
    ));
