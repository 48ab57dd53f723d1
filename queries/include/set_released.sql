-- Makes an execution claimable again after the loss of a lease: the attempt goes on, under a raised epoch.
lifecycle_phase = 'runnable',
ownership_state = 'unowned',
eligibility_state = 'eligible_now',
public_state = 'waiting',
attempt_state = 'attempt_interrupted',
blocking_reason = 'waiting_for_worker',
attempt_index = ${attempt_index},
ffx_gate_id = NULL,
ffx_lease_epoch = ${raised_epoch},
ffx_last_mutation_at_ms = @now_ms::bigint
