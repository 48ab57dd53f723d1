-- What stands in the document of an edge, those keys included that only this library writes.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: comment on ff_edge.policy
COMMENT ON COLUMN ff_edge.policy IS
    'Object: dependency_kind (default success_only), satisfaction_condition all_required, data_passing_ref, edge_state (pending, applied, satisfied, impossible), created_at_ms, created_by, staged_at_ms, applied_at_ms (null until it is applied). Rewritten when the edge is applied and when its upstream ends. Only this library: resolved_at_ms and resolved_outcome (success, failed, cancelled, expired or skipped) once its group has counted it, reopened_at_ms, and allow_active_downstream, true where it may lead to an execution that has started.';

-- migrate:down

COMMENT ON COLUMN ff_edge.policy IS
    'Object: dependency_kind (default success_only), satisfaction_condition all_required, data_passing_ref, edge_state (pending, applied, satisfied, impossible), created_at_ms, created_by, staged_at_ms, applied_at_ms (null until it is applied). Rewritten when the edge is applied and when its upstream ends.';
