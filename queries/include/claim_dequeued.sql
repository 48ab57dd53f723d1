-- Deleted. From claimed: entry_id, partition_key, execution_id. OFFSET 0: a joined whole row would read payloads again.
DELETE FROM ffx_ready AS r
USING (SELECT n.entry_id, n.partition_key, n.execution_id FROM claimed AS n OFFSET 0) AS c
WHERE
    r.ctid = c.entry_id
    AND r.partition_key = c.partition_key
    AND r.execution_id = c.execution_id
