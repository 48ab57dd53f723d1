-- Why the worker may not claim here: lane paused, or worker drained. One scan for both takes half the time of two.
SELECT p.subject
FROM ffx_pause AS p
WHERE
    p.name = ANY (ARRAY[@lane_id::text, @worker_instance_id::text])
    AND p.name = CASE p.subject WHEN 'lane' THEN @lane_id::text ELSE @worker_instance_id::text END
    AND (p.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
