-- Whether an execution holds a place of fair work: the execution waits for the first start or, after the pause, for a
-- retry. Other returning work has an old place, which the lane served long ago.
${of}.lifecycle_phase = 'runnable'
AND (
    ${of}.attempt_state = 'pending_first_attempt'
    OR ${of}.attempt_state = 'pending_retry_attempt'
    AND ${of}.eligibility_state <> 'not_eligible_until_time'
)
AND ${of}.created_at_ms = ${place_ms}
