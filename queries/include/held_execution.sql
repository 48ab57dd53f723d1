CROSS JOIN LATERAL (
    -- The execution e of an item i (partition_key, execution_id). The planner drops unused columns.
    SELECT
        t.ctid::tid AS row_id,
        t.flow_id,
        t.lane_id,
        t.required_capabilities,
        t.attempt_index,
        t.lifecycle_phase,
        t.ownership_state,
        t.eligibility_state,
        t.public_state,
        t.attempt_state,
        t.blocking_reason,
        t.priority,
        t.created_at_ms,
        t.started_at_ms,
        t.terminal_at_ms,
        t.deadline_at_ms,
        t.ffx_execution_deadline_ms,
        t.ffx_delay_until_ms,
        t.policy,
        t.cancellation_reason,
        t.lease_reclaim_count,
        t.ffx_lease_epoch,
        t.ffx_admitted,
        t.ffx_gate_id,
        t.ffx_budget_ids,
        t.ffx_limit_ids,
        t.ffx_unique_key,
        t.ffx_sequence,
        t.raw_fields
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
