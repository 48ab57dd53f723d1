-- Their queue entries, deleted. From claimed: entry_id, partition_key, execution_id.
DELETE FROM ffx_ready AS r
USING claimed AS c
WHERE
    r.ctid = c.entry_id
    AND r.partition_key = c.partition_key
    AND r.execution_id = c.execution_id
