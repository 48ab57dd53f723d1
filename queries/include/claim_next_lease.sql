-- The deadline that a delay covered counts again. From candidates AS c: attempt_state.
deadline_at_ms = CASE
    WHEN e.ffx_execution_deadline_ms >= 0 THEN nullif(e.ffx_execution_deadline_ms, 0)
    ELSE e.deadline_at_ms
END,
-- A negative deadline belongs to an end that another program has undone.
ffx_execution_deadline_ms = CASE WHEN e.ffx_execution_deadline_ms >= 0 THEN e.ffx_execution_deadline_ms END,
ffx_attempt_count = coalesce(e.ffx_attempt_count, 0)
    + CASE WHEN c.attempt_state = 'attempt_interrupted' THEN 0 ELSE 1 END,
ffx_lease_epoch = coalesce(e.ffx_lease_epoch, 0) + 1
