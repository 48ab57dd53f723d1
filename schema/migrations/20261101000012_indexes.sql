-- The indexes of this library. Those that lead with a time serve scans over all partitions; none is
-- unique, so that nothing the reference writes can violate one.
--
-- An index on ff_exec_core or ff_attempt is paid for by every claim and completion that touches its
-- row: each is partial, and holds only the rows that its scan is after.

-- migrate:up

-- object: ffx_ff_exec_core_claim_idx
-- The queue: claims read it in this order and stop at their limit.
CREATE INDEX ffx_ff_exec_core_claim_idx ON ff_exec_core (lane_id, priority DESC, created_at_ms, execution_id)
WHERE lifecycle_phase = 'runnable' AND eligibility_state = 'eligible_now';

-- object: ffx_ff_exec_core_promotion_idx
-- Delayed executions by the time they are due.
CREATE INDEX ffx_ff_exec_core_promotion_idx ON ff_exec_core (deadline_at_ms)
WHERE eligibility_state = 'not_eligible_until_time';

-- object: ffx_ff_exec_core_execution_deadline_idx
-- Deadlines: of this library's rows, then of rows only the reference wrote. A finished row keeps its
-- deadline and must not be met again.
CREATE INDEX ffx_ff_exec_core_execution_deadline_idx ON ff_exec_core (ffx_execution_deadline_ms)
WHERE ffx_execution_deadline_ms > 0 AND lifecycle_phase NOT IN ('terminal', 'cancelled');

-- object: ffx_ff_exec_core_deadline_idx
CREATE INDEX ffx_ff_exec_core_deadline_idx ON ff_exec_core (deadline_at_ms)
WHERE
    deadline_at_ms IS NOT NULL
    AND ffx_execution_deadline_ms IS NULL
    AND lifecycle_phase NOT IN ('terminal', 'cancelled');

-- object: ffx_ff_exec_core_granted_idx
-- Granted to a worker that has not claimed yet.
CREATE INDEX ffx_ff_exec_core_granted_idx ON ff_exec_core (execution_id)
WHERE eligibility_state = 'pending_claim';

-- object: ffx_ff_exec_core_route_idx
-- Waiting for a capable worker.
CREATE INDEX ffx_ff_exec_core_route_idx ON ff_exec_core (lane_id)
WHERE eligibility_state = 'blocked_by_route';

-- object: ffx_ff_exec_core_adopt_phase_idx
-- Rows the reference left in a form that only it knows; both are empty in a database without it.
CREATE INDEX ffx_ff_exec_core_adopt_phase_idx ON ff_exec_core (created_at_ms)
WHERE lifecycle_phase NOT IN ('runnable', 'active', 'suspended', 'terminal', 'cancelled');

-- object: ffx_ff_exec_core_adopt_public_state_idx
CREATE INDEX ffx_ff_exec_core_adopt_public_state_idx ON ff_exec_core (terminal_at_ms)
WHERE
    lifecycle_phase IN ('terminal', 'cancelled')
    AND public_state NOT IN ('completed', 'failed', 'cancelled', 'expired', 'skipped');

-- object: ffx_ff_exec_core_gate_idx
-- Waiting for a budget or quota, in claim order.
CREATE INDEX ffx_ff_exec_core_gate_idx ON ff_exec_core (ffx_gate_id, priority DESC, created_at_ms, execution_id)
WHERE ffx_gate_id IS NOT NULL;

-- object: ffx_ff_exec_core_retention_idx
-- Finished executions, oldest first.
CREATE INDEX ffx_ff_exec_core_retention_idx ON ff_exec_core (terminal_at_ms, execution_id)
WHERE terminal_at_ms IS NOT NULL;

-- object: ffx_ff_attempt_lease_idx
-- Leases by expiry.
CREATE INDEX ffx_ff_attempt_lease_idx ON ff_attempt (lease_expires_at_ms, execution_id)
WHERE lease_expires_at_ms IS NOT NULL;

-- object: ffx_ff_attempt_timeout_idx
-- Running attempts by timeout; a finished one keeps its timeout and must not be met again.
CREATE INDEX ffx_ff_attempt_timeout_idx ON ff_attempt (ffx_timeout_at_ms)
WHERE ffx_timeout_at_ms IS NOT NULL AND lease_expires_at_ms IS NOT NULL;

-- object: ffx_ff_completion_event_undispatched_idx
-- Completions whose dependents have not been resolved: those of the reference.
CREATE INDEX ffx_ff_completion_event_undispatched_idx ON ff_completion_event (event_id)
WHERE dispatched_at_ms IS NULL;

-- object: ffx_ff_signal_event_execution_idx
CREATE INDEX ffx_ff_signal_event_execution_idx ON ff_signal_event (partition_key, execution_id);

-- object: ffx_ff_operator_event_execution_idx
CREATE INDEX ffx_ff_operator_event_execution_idx ON ff_operator_event (partition_key, execution_id);

-- object: ffx_ff_suspension_current_timeout_idx
CREATE INDEX ffx_ff_suspension_current_timeout_idx ON ff_suspension_current (timeout_at_ms)
WHERE timeout_at_ms IS NOT NULL;

-- object: ffx_ff_waitpoint_pending_expiry_idx
CREATE INDEX ffx_ff_waitpoint_pending_expiry_idx ON ff_waitpoint_pending (expires_at_ms)
WHERE expires_at_ms IS NOT NULL;

-- object: ffx_ff_suspend_dedup_age_idx
CREATE INDEX ffx_ff_suspend_dedup_age_idx ON ff_suspend_dedup (created_at_ms);

-- object: ffx_ff_pending_cancel_groups_age_idx
CREATE INDEX ffx_ff_pending_cancel_groups_age_idx ON ff_pending_cancel_groups (enqueued_at_ms);

-- object: ffx_ff_edge_downstream_idx
-- For the reference's replay, which looks for edges without their flow.
CREATE INDEX ffx_ff_edge_downstream_idx ON ff_edge (partition_key, downstream_eid);

-- object: ffx_ff_budget_policy_reset_idx
CREATE INDEX ffx_ff_budget_policy_reset_idx ON ff_budget_policy (next_reset_at_ms)
WHERE next_reset_at_ms IS NOT NULL;

-- object: ffx_ff_budget_usage_dedup_expiry_idx
CREATE INDEX ffx_ff_budget_usage_dedup_expiry_idx ON ff_budget_usage_dedup (expires_at_ms);

-- object: ffx_ff_budget_usage_by_exec_purge_idx
-- The same by execution, for retention; so below for members of a cancelled flow.
CREATE INDEX ffx_ff_budget_usage_by_exec_purge_idx ON ff_budget_usage_by_exec (execution_id);

-- object: ffx_ff_quota_window_sweep_idx
-- A window's rows by age: the key has the dimension in between.
CREATE INDEX ffx_ff_quota_window_sweep_idx ON ff_quota_window (partition_key, quota_policy_id, admitted_at_ms);

-- object: ffx_ff_cancel_backlog_member_purge_idx
CREATE INDEX ffx_ff_cancel_backlog_member_purge_idx ON ff_cancel_backlog_member (partition_key, execution_id);

-- migrate:down

DROP INDEX ffx_ff_cancel_backlog_member_purge_idx;

DROP INDEX ffx_ff_quota_window_sweep_idx;

DROP INDEX ffx_ff_budget_usage_by_exec_purge_idx;

DROP INDEX ffx_ff_budget_usage_dedup_expiry_idx;

DROP INDEX ffx_ff_budget_policy_reset_idx;

DROP INDEX ffx_ff_edge_downstream_idx;

DROP INDEX ffx_ff_pending_cancel_groups_age_idx;

DROP INDEX ffx_ff_suspend_dedup_age_idx;

DROP INDEX ffx_ff_waitpoint_pending_expiry_idx;

DROP INDEX ffx_ff_suspension_current_timeout_idx;

DROP INDEX ffx_ff_operator_event_execution_idx;

DROP INDEX ffx_ff_signal_event_execution_idx;

DROP INDEX ffx_ff_completion_event_undispatched_idx;

DROP INDEX ffx_ff_attempt_timeout_idx;

DROP INDEX ffx_ff_attempt_lease_idx;

DROP INDEX ffx_ff_exec_core_retention_idx;

DROP INDEX ffx_ff_exec_core_gate_idx;

DROP INDEX ffx_ff_exec_core_adopt_public_state_idx;

DROP INDEX ffx_ff_exec_core_adopt_phase_idx;

DROP INDEX ffx_ff_exec_core_route_idx;

DROP INDEX ffx_ff_exec_core_granted_idx;

DROP INDEX ffx_ff_exec_core_deadline_idx;

DROP INDEX ffx_ff_exec_core_execution_deadline_idx;

DROP INDEX ffx_ff_exec_core_promotion_idx;

DROP INDEX ffx_ff_exec_core_claim_idx;
