-- The columns every end sets in an execution e.
ownership_state = 'unowned',
eligibility_state = 'not_applicable',
blocking_reason = NULL,
ffx_execution_deadline_ms = -abs(e.ffx_execution_deadline_ms),
ffx_gate_id = NULL,
ffx_admitted = NULL,
ffx_last_mutation_at_ms = ${at_ms}
