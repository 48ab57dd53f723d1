-- The key of a flow's node stands in raw_fields of its execution.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: comment on ff_exec_core.raw_fields
COMMENT ON COLUMN ff_exec_core.raw_fields IS
    'Object. Written at creation: namespace, execution_kind, creator_identity, idempotency_key, payload_encoding, tags (object of strings), last_mutation_at and total_attempt_count (decimal numbers in strings), and of a node of a flow ffx_node_key, its key. Later: tags.<key>, progress_pct, progress_message, blocking_detail; at a terminal failure failure_reason, failure_category, last_failure_message. Only FlowFabric: terminal_outcome, retry_count, delay_until, current_attempt_id, current_lease_id, current_waitpoint_id, claim_grant and others, all possibly stale. Keys that nobody here knows are kept.';

-- migrate:down

COMMENT ON COLUMN ff_exec_core.raw_fields IS
    'Object. Written at creation: namespace, execution_kind, creator_identity, idempotency_key, payload_encoding, tags (object of strings), last_mutation_at and total_attempt_count (decimal numbers in strings). Later: tags.<key>, progress_pct, progress_message, blocking_detail; at a terminal failure failure_reason, failure_category, last_failure_message. Only FlowFabric: terminal_outcome, retry_count, delay_until, current_attempt_id, current_lease_id, current_waitpoint_id, claim_grant and others, all possibly stale. Keys that nobody here knows are kept.';
