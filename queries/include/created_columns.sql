-- The columns of a new execution.
partition_key, execution_id, flow_id, lane_id, required_capabilities, attempt_index,
lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
blocking_reason, priority, created_at_ms, deadline_at_ms, payload, policy, raw_fields,
ffx_namespace, ffx_instance_tag, ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count,
ffx_lease_epoch, ffx_delay_until_ms, ffx_execution_deadline_ms, ffx_budget_ids,
ffx_quota_policy_id, ffx_quota_partition, ffx_limit_ids, ffx_limit_units, ffx_gate_id,
ffx_unique_key, ffx_admitted, ffx_created_at_ms
