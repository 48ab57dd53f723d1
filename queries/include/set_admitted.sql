-- The columns an admission sets in an execution e.
eligibility_state = 'eligible_now',
public_state = 'waiting',
blocking_reason = 'waiting_for_worker',
ffx_gate_id = NULL,
ffx_admitted = true,
ffx_last_mutation_at_ms = ffx_now_ms(sqlc.narg(now_ms))
