-- Rows as FlowFabric 0.15 stores them, or a defect of it leaves them: each literal of each column of an execution, in one
-- that waits, one that is active and one that has ended; each outcome of an attempt; and a row or more of every other
-- table. Ids and partitions are made of the row's meaning, so that they are the same in every database.

CREATE FUNCTION pg_temp.made_id(meaning text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5(meaning)::uuid $$;

CREATE FUNCTION pg_temp.made_key(meaning text) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$ SELECT (abs(hashtext(meaning)) % 256)::smallint $$;

CREATE TEMPORARY TABLE made AS
WITH base (base, phase, ownership, eligibility, public, attempt, terminal, leased) AS (
    VALUES
    ('waits', 'submitted', 'unowned', 'eligible_now', 'waiting', 'pending', false, false),
    ('returned', 'runnable', 'unowned', 'eligible_now', 'running', 'attempt_interrupted', false, false),
    ('active', 'active', 'leased', 'not_applicable', 'running', 'running_attempt', false, true),
    ('ended', 'terminal', 'unowned', 'not_applicable', 'running', 'attempt_terminal', true, false)
),
literal (what, literal) AS (
    VALUES
    ('phase', 'submitted'), ('phase', 'runnable'), ('phase', 'pending'), ('phase', 'eligible'), ('phase', 'blocked'),
    ('phase', 'active'), ('phase', 'suspended'), ('phase', 'terminal'), ('phase', 'cancelled'),
    ('ownership', 'unowned'), ('ownership', 'released'), ('ownership', 'leased'), ('ownership', 'lease_expired_reclaimable'),
    ('ownership', 'lease_revoked'),
    ('eligibility', 'eligible_now'), ('eligibility', 'pending_claim'), ('eligibility', 'cancelled'),
    ('eligibility', 'not_eligible_until_time'), ('eligibility', 'blocked_by_dependencies'), ('eligibility', 'blocked_by_budget'),
    ('eligibility', 'blocked_by_quota'), ('eligibility', 'blocked_by_route'), ('eligibility', 'blocked_by_lane_state'),
    ('eligibility', 'blocked_by_operator'), ('eligibility', 'not_applicable'),
    ('attempt', 'pending'), ('attempt', 'pending_claim'), ('attempt', 'pending_first_attempt'), ('attempt', 'initial'),
    ('attempt', 'running'), ('attempt', 'running_attempt'), ('attempt', 'cancelled'), ('attempt', 'terminal_failed'),
    ('attempt', 'attempt_terminal'), ('attempt', 'none'), ('attempt', 'attempt_interrupted'), ('attempt', 'pending_retry_attempt'),
    ('attempt', 'pending_replay_attempt'),
    ('public', 'running'), ('public', 'claimed'), ('public', 'active'), ('public', 'waiting'), ('public', 'delayed'),
    ('public', 'rate_limited'), ('public', 'waiting_children'), ('public', 'suspended'), ('public', 'resumable'),
    ('public', 'completed'), ('public', 'failed'), ('public', 'cancelled'), ('public', 'expired'), ('public', 'skipped'),
    ('reason', ''), ('reason', 'none'), ('reason', 'waiting_for_worker'), ('reason', 'waiting_for_retry_backoff'),
    ('reason', 'waiting_for_resume_delay'), ('reason', 'waiting_for_delay'), ('reason', 'waiting_for_signal'),
    ('reason', 'waiting_for_approval'), ('reason', 'waiting_for_callback'), ('reason', 'waiting_for_tool_result'),
    ('reason', 'waiting_for_children'), ('reason', 'waiting_for_budget'), ('reason', 'waiting_for_quota'),
    ('reason', 'waiting_for_capable_worker'), ('reason', 'waiting_for_locality_match'), ('reason', 'paused_by_operator'),
    ('reason', 'paused_by_policy'), ('reason', 'paused_by_flow_cancel'),
    ('outcome', 'success'), ('outcome', 'failed'), ('outcome', 'failure'), ('outcome', 'retry'), ('outcome', 'interrupted'),
    ('outcome', 'waiting_children'), ('outcome', 'attempt_interrupted'), ('outcome', 'interrupted_reclaimed'),
    ('outcome', 'lease_expired_reclaimable'), ('outcome', 'cancelled'), ('outcome', 'expired'), ('outcome', 'skipped'),
    ('by', 'worker'), ('by', 'cancel_flow'), ('by', 'cancel_flow_header'), ('by', 'engine'), ('by', 'operator_override'),
    ('by', 'lease_holder'), ('by', 'flow_cascade'), ('by', 'system_timeout'),
    ('why', 'flow_cancelled'), ('why', 'sibling_quorum_satisfied'), ('why', 'reclaim_cap_exceeded'),
    ('why', 'suspension_timeout_fail'), ('why', 'suspension_timeout_cancel'), ('why', 'suspension_timeout_expire'),
    ('why', 'suspension_timeout_escalate'),
    ('fields', '{"last_failure_message":"attempt_timeout","last_mutation_at":"7"}'),
    ('fields', '{"failure_reason":"x","terminal_outcome":"failed","retry_count":"2"}'),
    ('fields', '{"delay_until":"32503680000000","retry_count":"1","total_attempt_count":"0"}'),
    ('fields', '{"namespace":"acme","execution_kind":"send","tags":{"cairn.instance_id":"i","a.b":"c"},"progress_pct":7}'),
    ('fields', '{"current_attempt_id":"3b241101-e2bb-4255-8caf-4136c566a962","claim_grant":{"grant_key":"k","expires_at_ms":1}}'),
    ('fields', '{"budget_ids":"3b241101-e2bb-4255-8caf-4136c566a962,tea","quota_policy_id":"3b241101-e2bb-4255-8caf-4136c566a963"}'),
    ('policy', '{"priority":3,"max_reclaim_count":1,"max_replay_count":0,"budget_ids":[],"max_signals_per_execution":5}'),
    ('policy', '{"delay_until":32503680000000,"timeout_policy":{"execution_deadline_ms":3600000,"attempt_timeout_ms":5}}'),
    ('policy', '{"routing_requirements":{"required_capabilities":["gpu","","avx"]},"budget_ids":["3b241101-e2bb-4255-8caf-4136c566a962"]}'),
    ('policy', '{"retry_policy":{"max_retries":3,"backoff":{"type":"fixed","delay_ms":5},"retryable_categories":[]}}')
)
SELECT
    b.base || ' ' || l.what || ' ' || l.literal AS meaning,
    CASE WHEN l.what = 'phase' THEN l.literal ELSE b.phase END AS phase,
    CASE WHEN l.what = 'ownership' THEN l.literal ELSE b.ownership END AS ownership,
    CASE WHEN l.what = 'eligibility' THEN l.literal ELSE b.eligibility END AS eligibility,
    CASE WHEN l.what = 'public' THEN l.literal ELSE b.public END AS public,
    CASE WHEN l.what = 'attempt' THEN l.literal ELSE b.attempt END AS attempt,
    CASE WHEN l.what = 'reason' THEN l.literal END AS reason,
    CASE WHEN l.what = 'outcome' THEN l.literal END AS outcome,
    CASE WHEN l.what = 'by' THEN l.literal END AS cancelled_by,
    CASE WHEN l.what = 'why' THEN l.literal END AS why,
    CASE WHEN l.what = 'fields' THEN l.literal::jsonb ELSE '{"namespace":"n","execution_kind":"k","tags":{}}' END AS fields,
    CASE WHEN l.what = 'policy' THEN l.literal::jsonb END AS policy,
    b.terminal OR l.literal IN ('terminal') OR l.what = 'phase' AND l.literal = 'cancelled' AS ended,
    b.leased,
    b.base <> 'waits' AS started
FROM base AS b
CROSS JOIN literal AS l;

INSERT INTO ff_exec_core (
    partition_key, execution_id, lane_id, attempt_index, lifecycle_phase, ownership_state, eligibility_state, public_state,
    attempt_state, blocking_reason, cancellation_reason, cancelled_by, priority, created_at_ms, terminal_at_ms, deadline_at_ms,
    payload, result, policy, raw_fields, started_at_ms
)
SELECT
    pg_temp.made_key(m.meaning), pg_temp.made_id(m.meaning), 'lane', 0, m.phase, m.ownership, m.eligibility, m.public,
    m.attempt, m.reason, m.why, m.cancelled_by, length(m.meaning) * 100 - 1000, 1,
    CASE WHEN m.ended THEN (extract(epoch FROM date_trunc('hour', now())) * 1000)::bigint - 3600000 END,
    CASE WHEN m.eligibility = 'not_eligible_until_time' THEN 32503680000000 END,
    convert_to(m.meaning, 'UTF8'), CASE WHEN m.ended THEN '\x00ff'::bytea END, m.policy, m.fields,
    CASE WHEN m.started THEN 5 END
FROM made AS m;

INSERT INTO ff_attempt (
    partition_key, execution_id, attempt_index, worker_id, worker_instance_id, lease_epoch, lease_expires_at_ms, started_at_ms,
    terminal_at_ms, outcome, policy, raw_fields
)
SELECT
    pg_temp.made_key(m.meaning), pg_temp.made_id(m.meaning), 0, 'w', CASE WHEN m.leased THEN 'w-1' END, 3,
    CASE WHEN m.leased THEN 32503680000000 END, 5, CASE WHEN m.ended THEN 9 END, m.outcome, '{"any": [1]}',
    '{"attempt_type":"initial","attempt_id":"3b241101-e2bb-4255-8caf-4136c566a964","lease_id":"3b241101-e2bb-4255-8caf-4136c566a965"}'
FROM made AS m
WHERE m.started;

-- A flow of four: b follows a, which has succeeded; c follows b; d needs one of a and b, and no group was stored for it.
-- The tests replace @FLOW_KEY by the flow's partition.
CREATE TEMPORARY TABLE made_flow AS
SELECT pg_temp.made_id('flow') AS flow_id;

INSERT INTO ff_flow_core (partition_key, flow_id, graph_revision, public_flow_state, created_at_ms, raw_fields)
SELECT @FLOW_KEY, f.flow_id, 7, 'open', 1,
    '{"flow_kind":"etl","namespace":"n","node_count":4,"edge_count":4,"last_mutation_at_ms":2,"a.b":"tag"}'
FROM made_flow AS f;

INSERT INTO ff_flow_summary (partition_key, flow_id, total_members, public_flow_state, last_summary_update_at)
SELECT @FLOW_KEY, f.flow_id, 4, 'running', 3
FROM made_flow AS f;

INSERT INTO ff_exec_core (
    partition_key, execution_id, flow_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state,
    attempt_state, created_at_ms, terminal_at_ms, raw_fields
)
SELECT
    @FLOW_KEY, pg_temp.made_id('member ' || n.node), f.flow_id, 'lane', n.phase, 'unowned', n.eligibility, n.public, n.attempt, 1,
    n.terminal, '{"namespace":"n","execution_kind":"k","tags":{}}'
FROM made_flow AS f
CROSS JOIN (
    VALUES
    ('a', 'terminal', 'not_applicable', 'completed', 'attempt_terminal', 1000::bigint),
    ('b', 'submitted', 'eligible_now', 'waiting', 'pending', NULL),
    ('c', 'submitted', 'eligible_now', 'waiting', 'pending', NULL),
    ('d', 'submitted', 'eligible_now', 'waiting', 'pending', NULL)
) AS n (node, phase, eligibility, public, attempt, terminal);

INSERT INTO ff_edge (partition_key, flow_id, edge_id, upstream_eid, downstream_eid, policy)
SELECT
    @FLOW_KEY, f.flow_id, pg_temp.made_id(d.upstream || d.downstream), pg_temp.made_id('member ' || d.upstream),
    pg_temp.made_id('member ' || d.downstream),
    jsonb_build_object(
        'dependency_kind', 'success_only', 'satisfaction_condition', 'all_required', 'data_passing_ref', '',
        'edge_state', d.state, 'created_at_ms', 1, 'created_by', 'engine', 'staged_at_ms', 1, 'applied_at_ms', d.applied
    )
FROM made_flow AS f
CROSS JOIN (
    VALUES ('a', 'b', 'applied', 2), ('b', 'c', 'applied', 2), ('b', 'd', 'pending', NULL), ('a', 'd', 'pending', NULL)
) AS d (upstream, downstream, state, applied);

INSERT INTO ff_edge_group (partition_key, flow_id, downstream_eid, policy, success_count, running_count)
SELECT @FLOW_KEY, f.flow_id, pg_temp.made_id('member ' || g.node), g.policy::jsonb, g.success, g.running
FROM made_flow AS f
CROSS JOIN (
    VALUES ('b', '{"kind":"all_of"}', 1, 0), ('c', '{"kind":"quorum","k":1,"on_satisfied":"let_run"}', 0, 1)
) AS g (node, policy, success, running);

INSERT INTO ff_pending_cancel_groups VALUES (@FLOW_KEY, pg_temp.made_id('flow'), pg_temp.made_id('member c'), 5);
INSERT INTO ff_cancel_dispatch_outbox
VALUES (@FLOW_KEY, pg_temp.made_id('flow'), pg_temp.made_id('member c'), pg_temp.made_id('member a'), 'x', 5);
INSERT INTO ff_cancel_backlog (partition_key, flow_id, requested_at_ms, cancellation_policy)
VALUES (3, pg_temp.made_id('other flow'), 5, 'cancel_all');
INSERT INTO ff_cancel_backlog_member VALUES (3, pg_temp.made_id('other flow'), '{fp:3}:' || pg_temp.made_id('x'));

INSERT INTO ff_claim_grant (
    partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, grant_ttl_ms, issued_at_ms, expires_at_ms
)
SELECT
    pg_temp.made_key(m.meaning), sha256(convert_to(m.meaning || k.kind, 'UTF8')), pg_temp.made_id(m.meaning), k.kind, 'w', 'w-1',
    5, 1, 32503680000000
FROM made AS m
CROSS JOIN (VALUES ('claim'), ('reclaim')) AS k (kind)
WHERE m.meaning = 'waits eligibility pending_claim';

INSERT INTO ff_lane_registry VALUES ('lane', 1, 'create_execution');
INSERT INTO ff_waitpoint_hmac VALUES ('k1', '\x01', 100, true), ('k2', '\x02', 300, true), ('k3', '\x03', 200, false);

INSERT INTO ff_stream_frame VALUES (1, pg_temp.made_id('x'), 0, 5, 0, '{"payload":"p"}', 'durable', 5);
INSERT INTO ff_stream_frame VALUES (1, pg_temp.made_id('x'), 0, 5, 1, '{"payload":"p"}', 'best_effort', 5);
INSERT INTO ff_stream_summary VALUES (1, pg_temp.made_id('x'), 0, '{"a":1}', 1, NULL, 5, 5);
INSERT INTO ff_stream_meta VALUES (1, pg_temp.made_id('x'), 0, 0.1, 5, 7);

INSERT INTO ff_completion_event (partition_key, execution_id, flow_id, outcome, occurred_at_ms, committed_at_ms, dispatched_at_ms)
SELECT
    pg_temp.made_key(o.outcome), pg_temp.made_id(o.outcome), CASE WHEN o.outcome = 'success' THEN pg_temp.made_id('flow') END,
    o.outcome, 5, 6, CASE WHEN o.outcome <> 'success' THEN 7 END
FROM (VALUES ('success'), ('failed'), ('cancelled'), ('expired'), ('skipped'), ('resumable')) AS o (outcome);

INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key, namespace)
SELECT pg_temp.made_id(e.type)::text, e.type, 5, pg_temp.made_key(e.type), 'n'
FROM (VALUES ('acquired'), ('renewed'), ('reclaimed'), ('expired'), ('revoked')) AS e (type);
INSERT INTO ff_signal_event (execution_id, signal_id, delivered_at_ms, partition_key)
VALUES (pg_temp.made_id('x')::text, pg_temp.made_id('s')::text, 5, 1);
INSERT INTO ff_operator_event (execution_id, event_type, details, occurred_at_ms, partition_key)
VALUES (pg_temp.made_id('x')::text, 'replayed', '{"branch":"normal"}', 5, 1);

INSERT INTO ff_worker_registry VALUES (1, 'n', 'w-1', 'w', '{lane}', 'gpu', 5, 30000, 1);
INSERT INTO ff_worker_registry_event VALUES (1, 'n', 'w-1', 'registered', 5, NULL), (1, 'n', 'w-1', 'ttl_swept', 5, NULL);
