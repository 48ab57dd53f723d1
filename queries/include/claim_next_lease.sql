-- The deadline a delay covered counts again. From candidates AS c: attempt_state.
deadline_at_ms = nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0),
ffx_attempt_count = coalesce(e.ffx_attempt_count, 0) + (c.attempt_state IS DISTINCT FROM 'attempt_interrupted')::integer,
ffx_lease_epoch = coalesce(e.ffx_lease_epoch, 0) + 1
