-- Comments on FlowFabric's tables of executions and flows: the purpose of each table and column, with unit and form.
-- psql shows them (\d+), and sqlc copies them into the models of package db. FlowFabric reads no comments.
--
-- An object of this library has its comment directly below it. A test checks that every object has one. A comment
-- locks no rows, and a table only against other changes of the table.
--
-- usable-from: 20261125000001

-- migrate:up

COMMENT ON TABLE ff_exec_core IS
    'One row per execution: its authoritative state. Who reads states by hand reads the view ffx_execution, which knows every spelling that is stored.';
COMMENT ON COLUMN ff_exec_core.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ff_exec_core.execution_id IS
    'The uuid half of the execution''s id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_exec_core.flow_id IS
    'The flow that it is a member of, set once; NULL outside a flow.';
COMMENT ON COLUMN ff_exec_core.lane_id IS
    'The lane that it is claimed from: 1 to 64 bytes of ASCII 0x20 to 0x7e.';
COMMENT ON COLUMN ff_exec_core.required_capabilities IS
    'What a worker must have to claim it, all of them, sorted; empty: any worker.';
COMMENT ON COLUMN ff_exec_core.attempt_index IS
    'Index of the newest attempt, from 0; while a new one is pending, the index it will get. FlowFabric stores running + 1 for some claims: the current attempt is the greatest index not above this.';
COMMENT ON COLUMN ff_exec_core.lifecycle_phase IS
    'submitted, runnable, active, suspended, terminal or cancelled; it has ended when it is one of the last two. Read as runnable: blocked, pending, eligible.';
COMMENT ON COLUMN ff_exec_core.ownership_state IS
    'unowned, leased, lease_expired_reclaimable or lease_revoked. Read as unowned: released.';
COMMENT ON COLUMN ff_exec_core.eligibility_state IS
    'May a runnable one be claimed: eligible_now, not_eligible_until_time, blocked_by_dependencies, _budget, _quota, _route, _lane_state or _operator, not_applicable. Read as eligible_now: pending_claim; as not_applicable: cancelled.';
COMMENT ON COLUMN ff_exec_core.public_state IS
    'The state to show: waiting, delayed, rate_limited, waiting_children, running, suspended, resumable, completed, failed, cancelled, expired or skipped. Read as active: running, claimed, active. FlowFabric leaves it behind on many transitions: readers derive it from the other columns, as ffx_execution does.';
COMMENT ON COLUMN ff_exec_core.attempt_state IS
    'none, pending_first_attempt, running_attempt, attempt_interrupted (the same attempt goes on), pending_retry_attempt, pending_replay_attempt or attempt_terminal. Other spellings: pending, pending_claim and initial (first attempt pending), running, cancelled and terminal_failed (attempt terminal).';
COMMENT ON COLUMN ff_exec_core.blocking_reason IS
    'What it waits for: waiting_for_worker, waiting_for_children, waiting_for_retry_backoff, waiting_for_delay, waiting_for_signal and others; NULL or empty: nothing. Means nothing once it has ended.';
COMMENT ON COLUMN ff_exec_core.cancellation_reason IS
    'Why it was cancelled: the caller''s text, or flow_cancelled, sibling_quorum_satisfied, reclaim_cap_exceeded, suspension_timeout_fail and others. NULL: it was not.';
COMMENT ON COLUMN ff_exec_core.cancelled_by IS
    'On whose behalf it was cancelled: operator_override, lease_holder, flow_cascade, system_timeout, worker, cancel_flow, engine or the caller''s text. NULL: it was not.';
COMMENT ON COLUMN ff_exec_core.priority IS
    'The higher is claimed first, 0 to 9000; FlowFabric does not clamp it at creation.';
COMMENT ON COLUMN ff_exec_core.created_at_ms IS
    'Milliseconds since the Unix epoch: when it was created. Within a priority the older is claimed first.';
COMMENT ON COLUMN ff_exec_core.terminal_at_ms IS
    'Milliseconds since the Unix epoch: when it ended; NULL until then.';
COMMENT ON COLUMN ff_exec_core.deadline_at_ms IS
    'Milliseconds since the Unix epoch. The execution''s deadline; of one that is delayed, the sooner of its wake-up and its deadline. FlowFabric overwrites it: ffx_execution_deadline_ms and ffx_delay_until_ms tell them apart where they are set.';
COMMENT ON COLUMN ff_exec_core.payload IS
    'Input, bytes as the creator gave them; NULL or empty: none.';
COMMENT ON COLUMN ff_exec_core.result IS
    'Result of the attempt that succeeded, bytes as the worker gave them; NULL: none.';
COMMENT ON COLUMN ff_exec_core.policy IS
    'Execution policy given at creation, an object: retry_policy {max_retries, backoff {type fixed, delay_ms} or {type exponential, initial_delay_ms, max_delay_ms, multiplier, jitter} or {type patient}, retryable_categories}, timeout_policy {attempt_timeout_ms, execution_deadline_ms, max_reclaim_count}, routing_requirements {required_capabilities} and others. NULL: none given.';
COMMENT ON COLUMN ff_exec_core.raw_fields IS
    'Object. Written at creation: namespace, execution_kind, creator_identity, idempotency_key, payload_encoding, tags (object of strings), last_mutation_at and total_attempt_count (decimal numbers in strings), and of a node of a flow ffx_node_key, its key. Later: tags.<key>, progress_pct, progress_message, blocking_detail; at a terminal failure failure_reason, failure_category, last_failure_message. Only FlowFabric: terminal_outcome, retry_count, delay_until, current_attempt_id, current_lease_id, current_waitpoint_id, claim_grant and others, all possibly stale. Keys that nobody here knows are kept.';
COMMENT ON COLUMN ff_exec_core.started_at_ms IS
    'Milliseconds since the Unix epoch: its first claim ever; NULL before it. Not cleared by later attempts.';
COMMENT ON COLUMN ff_exec_core.lease_reclaim_count IS
    'How many of its leases ran out; above the policy''s max_reclaim_count it fails.';

COMMENT ON TABLE ff_attempt IS
    'One row per attempt at an execution: its lease, and how it ended. The lease is (execution_id, attempt_index, lease_epoch).';
COMMENT ON COLUMN ff_attempt.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ff_attempt.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_attempt.attempt_index IS
    'Number of the attempt, from 0.';
COMMENT ON COLUMN ff_attempt.worker_id IS
    'Logical worker that has the lease, or had it last; NULL after a suspension or a replay.';
COMMENT ON COLUMN ff_attempt.worker_instance_id IS
    'Process that has the lease, or had it last; NULL or empty: no lease.';
COMMENT ON COLUMN ff_attempt.lease_epoch IS
    'Fencing token, raised by every claim and by whatever takes the lease away; a write with an older one is refused. Negative reads as 0.';
COMMENT ON COLUMN ff_attempt.lease_expires_at_ms IS
    'Milliseconds since the Unix epoch: when the lease runs out unless it is renewed; NULL: released. FlowFabric leaves it on executions that it cancels.';
COMMENT ON COLUMN ff_attempt.started_at_ms IS
    'Milliseconds since the Unix epoch: start of the first lease; some claims of FlowFabric write that of the last one.';
COMMENT ON COLUMN ff_attempt.terminal_at_ms IS
    'Milliseconds since the Unix epoch: when the attempt ended. Alone it proves nothing: FlowFabric keeps it when it claims the row again.';
COMMENT ON COLUMN ff_attempt.outcome IS
    'How the last lease ended; NULL: leased, or never leased. Over: success, failed (FlowFabric also failure), retry (another attempt follows), cancelled, expired, skipped, interrupted_reclaimed, and interrupted with a terminal_at_ms (timed out). To go on: interrupted (delayed), waiting_children, attempt_interrupted (suspended), lease_expired_reclaimable.';
COMMENT ON COLUMN ff_attempt.usage IS
    'Reserved: nobody writes or reads it.';
COMMENT ON COLUMN ff_attempt.policy IS
    'Attempt policy that a claim of FlowFabric brought, the caller''s JSON; NULL: none.';
COMMENT ON COLUMN ff_attempt.raw_fields IS
    'Object. failure_reason, failure_category and failure_class of a failure that was retried, failure_detail of any; from FlowFabric attempt_type, attempt_id, lease_id, which hold where lease_epoch is not the execution''s ffx_lease_epoch.';

COMMENT ON TABLE ff_claim_grant IS
    'Claim grants: short-lived permission for one worker to claim or reclaim one execution.';
COMMENT ON COLUMN ff_claim_grant.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ff_claim_grant.grant_id IS
    '32 bytes, SHA-256 of the grant''s key; 16 random bytes of a grant that is used at once.';
COMMENT ON COLUMN ff_claim_grant.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_claim_grant.kind IS
    'claim or reclaim.';
COMMENT ON COLUMN ff_claim_grant.worker_id IS
    'Logical worker that may use it; operator: an operator''s claim.';
COMMENT ON COLUMN ff_claim_grant.worker_instance_id IS
    'Process that it was given to; of a reclaim for information only.';
COMMENT ON COLUMN ff_claim_grant.lane_id IS
    'Lane; NULL in grants of FlowFabric''s scheduler.';
COMMENT ON COLUMN ff_claim_grant.capability_hash IS
    'Of a reclaim, the caller''s text; else NULL.';
COMMENT ON COLUMN ff_claim_grant.worker_capabilities IS
    'Array of strings, sorted: capabilities of the worker of a reclaim.';
COMMENT ON COLUMN ff_claim_grant.route_snapshot_json IS
    'Opaque text of a reclaim; else NULL.';
COMMENT ON COLUMN ff_claim_grant.admission_summary IS
    'Opaque text of a reclaim; else NULL.';
COMMENT ON COLUMN ff_claim_grant.grant_ttl_ms IS
    'How long it is good for, in milliseconds.';
COMMENT ON COLUMN ff_claim_grant.issued_at_ms IS
    'Milliseconds since the Unix epoch: when it was issued; the newest counts.';
COMMENT ON COLUMN ff_claim_grant.expires_at_ms IS
    'Milliseconds since the Unix epoch: from when on it cannot be used.';

COMMENT ON TABLE ff_lane_registry IS
    'Lanes that an execution was ever created in.';
COMMENT ON COLUMN ff_lane_registry.lane_id IS
    'The lane: 1 to 64 bytes of ASCII 0x20 to 0x7e.';
COMMENT ON COLUMN ff_lane_registry.registered_at_ms IS
    'Milliseconds since the Unix epoch: the first creation.';
COMMENT ON COLUMN ff_lane_registry.registered_by IS
    'Always create_execution.';

COMMENT ON TABLE ff_flow_core IS
    'One row per flow: a graph of executions.';
COMMENT ON COLUMN ff_flow_core.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_flow_core.flow_id IS
    'Id of the flow.';
COMMENT ON COLUMN ff_flow_core.graph_revision IS
    'Version of the graph: one more for each member and each edge added.';
COMMENT ON COLUMN ff_flow_core.public_flow_state IS
    'open until it is cancelled, then cancelled. Also read: running and blocked (active), completed, failed.';
COMMENT ON COLUMN ff_flow_core.created_at_ms IS
    'Milliseconds since the Unix epoch: when it was created.';
COMMENT ON COLUMN ff_flow_core.terminal_at_ms IS
    'Milliseconds since the Unix epoch: when it was cancelled; NULL until then.';
COMMENT ON COLUMN ff_flow_core.raw_fields IS
    'Object: flow_kind, namespace (default when missing), node_count, edge_count, last_mutation_at_ms (numbers, the last in milliseconds), cancellation_policy, cancel_reason. Only this library: ffx_retention_ms, how long it is kept once all members have ended (negative: for ever), and ffx_prune_members_after_ms, after which ended members are deleted while the flow lives on. A top-level key with a dot in it and a string as value is a tag of the flow.';

COMMENT ON TABLE ff_flow_summary IS
    'Counts of a flow''s members, written whole by this library''s Maintenance.SummariseFlows and by FlowFabric''s project_flow_summary; for display, possibly old, never a guard. A flow without members has no row.';
COMMENT ON COLUMN ff_flow_summary.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_flow_summary.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_flow_summary.total_members IS
    'Members in all.';
COMMENT ON COLUMN ff_flow_summary.sampled_members IS
    'Members looked at: equal to total_members.';
COMMENT ON COLUMN ff_flow_summary.members_completed IS
    'Members that ended with success.';
COMMENT ON COLUMN ff_flow_summary.members_failed IS
    'Members that failed.';
COMMENT ON COLUMN ff_flow_summary.members_cancelled IS
    'Members that were cancelled.';
COMMENT ON COLUMN ff_flow_summary.members_expired IS
    'Members that expired.';
COMMENT ON COLUMN ff_flow_summary.members_skipped IS
    'Members that were skipped.';
COMMENT ON COLUMN ff_flow_summary.members_active IS
    'Members that are running.';
COMMENT ON COLUMN ff_flow_summary.members_suspended IS
    'Members that are suspended.';
COMMENT ON COLUMN ff_flow_summary.members_waiting IS
    'Members that are claimable.';
COMMENT ON COLUMN ff_flow_summary.members_delayed IS
    'Members that are delayed.';
COMMENT ON COLUMN ff_flow_summary.members_rate_limited IS
    'Members that wait for a budget or a quota.';
COMMENT ON COLUMN ff_flow_summary.members_waiting_children IS
    'Members that wait for their dependencies.';
COMMENT ON COLUMN ff_flow_summary.public_flow_state IS
    'completed, failed, running, blocked or open, derived from the counts; never cancelled.';
COMMENT ON COLUMN ff_flow_summary.last_summary_update_at IS
    'Milliseconds since the Unix epoch, although its name does not say so: when the row was written.';

COMMENT ON TABLE ff_edge IS
    'One row per dependency: an edge of a flow, from one member to another that waits for it.';
COMMENT ON COLUMN ff_edge.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_edge.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_edge.edge_id IS
    'Id of the edge.';
COMMENT ON COLUMN ff_edge.upstream_eid IS
    'Member that is waited for, the uuid half of its id.';
COMMENT ON COLUMN ff_edge.downstream_eid IS
    'Member that waits, the uuid half of its id.';
COMMENT ON COLUMN ff_edge.policy IS
    'Object: dependency_kind (default success_only), satisfaction_condition all_required, data_passing_ref, edge_state (pending, applied, satisfied, impossible), created_at_ms, created_by, staged_at_ms, applied_at_ms (null until it is applied). Rewritten when the edge is applied and when its upstream ends. Only this library: resolved_at_ms and resolved_outcome (success, failed, cancelled, expired or skipped) once its group has counted it, reopened_at_ms, and allow_active_downstream, true where it may lead to an execution that has started.';
COMMENT ON COLUMN ff_edge.policy_version IS
    'Reserved: always 0.';

COMMENT ON TABLE ff_edge_group IS
    'One row per member that waits for others: how many of its upstreams ended how. The four counts together are the edges applied into it, and where policy has a key ffx_when 1000000000 more.';
COMMENT ON COLUMN ff_edge_group.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_edge_group.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_edge_group.downstream_eid IS
    'Member that waits, the uuid half of its id.';
COMMENT ON COLUMN ff_edge_group.policy IS
    'When it may run, exactly one of {"kind":"all_of"}, {"kind":"any_of","on_satisfied":S}, {"kind":"quorum","k":N,"on_satisfied":S}, {"kind":"quorum","k":1000000000,"on_satisfied":"let_run","ffx_when":W}; S is cancel_remaining or let_run. W: on_failure, once all upstreams have ended and one of them without success; always, once all have ended.';
COMMENT ON COLUMN ff_edge_group.k_target IS
    'Successes that satisfy the group: 1, k or the number of edges. 0: by FlowFabric, which never writes it; derived from policy. 1000000000: successes alone never do.';
COMMENT ON COLUMN ff_edge_group.success_count IS
    'Upstreams that ended with success.';
COMMENT ON COLUMN ff_edge_group.fail_count IS
    'Upstreams that ended otherwise: failed, cancelled, expired.';
COMMENT ON COLUMN ff_edge_group.skip_count IS
    'Upstreams that were skipped.';
COMMENT ON COLUMN ff_edge_group.running_count IS
    'Upstreams that have not ended; where policy has a key ffx_when 1000000000 more, so that FlowFabric decides nothing about the group.';
COMMENT ON COLUMN ff_edge_group.cancel_siblings_pending_flag IS
    'Whether the upstreams that are no longer needed still have to be cancelled.';
COMMENT ON COLUMN ff_edge_group.cancel_siblings_pending_members IS
    'Those upstreams, bare uuids as text.';

COMMENT ON TABLE ff_pending_cancel_groups IS
    'Work list: groups in ff_edge_group whose remaining upstreams are to be cancelled. A row goes when that is done.';
COMMENT ON COLUMN ff_pending_cancel_groups.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_pending_cancel_groups.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_pending_cancel_groups.downstream_eid IS
    'Member whose group it is, the uuid half of its id.';
COMMENT ON COLUMN ff_pending_cancel_groups.enqueued_at_ms IS
    'Milliseconds since the Unix epoch: when the group was decided.';

COMMENT ON TABLE ff_cancel_dispatch_outbox IS
    'Reserved by FlowFabric: nobody writes or reads it.';
COMMENT ON COLUMN ff_cancel_dispatch_outbox.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_cancel_dispatch_outbox.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_cancel_dispatch_outbox.downstream_eid IS
    'Reserved.';
COMMENT ON COLUMN ff_cancel_dispatch_outbox.target_exec_id IS
    'Reserved.';
COMMENT ON COLUMN ff_cancel_dispatch_outbox.reason IS
    'Reserved.';
COMMENT ON COLUMN ff_cancel_dispatch_outbox.enqueued_at_ms IS
    'Reserved. Milliseconds since the Unix epoch.';

COMMENT ON TABLE ff_cancel_backlog IS
    'One row per cancelled flow some of whose members have yet to acknowledge it; FlowFabric''s cancel_flow_header writes it.';
COMMENT ON COLUMN ff_cancel_backlog.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_cancel_backlog.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_cancel_backlog.requested_at_ms IS
    'Milliseconds since the Unix epoch: when it was cancelled.';
COMMENT ON COLUMN ff_cancel_backlog.requester IS
    'Who asked for it; empty: nobody said.';
COMMENT ON COLUMN ff_cancel_backlog.reason IS
    'Why, the caller''s text.';
COMMENT ON COLUMN ff_cancel_backlog.grace_until_ms IS
    'Milliseconds since the Unix epoch: until when members may end by themselves; NULL: not used.';
COMMENT ON COLUMN ff_cancel_backlog.cancellation_policy IS
    'The caller''s text: cancel_flow_only, cancel_pending, cancel_all or cancel_everything.';
COMMENT ON COLUMN ff_cancel_backlog.status IS
    'Always pending.';

COMMENT ON TABLE ff_cancel_backlog_member IS
    'One row per member of a cancelled flow that has not acknowledged it.';
COMMENT ON COLUMN ff_cancel_backlog_member.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_cancel_backlog_member.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_cancel_backlog_member.execution_id IS
    'The member, its whole id {fp:N}:<uuid> as text.';

-- migrate:down

DO $$
DECLARE
    tables CONSTANT text[] := ARRAY[
            'ff_exec_core', 'ff_attempt', 'ff_claim_grant', 'ff_lane_registry', 'ff_flow_core',
            'ff_flow_summary', 'ff_edge', 'ff_edge_group', 'ff_pending_cancel_groups',
            'ff_cancel_dispatch_outbox', 'ff_cancel_backlog', 'ff_cancel_backlog_member'
    ];
    statement text;
BEGIN
    FOR statement IN
        SELECT format('COMMENT ON COLUMN %I.%I IS NULL', c.relname, a.attname)
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE
            c.relnamespace = quote_ident(current_schema())::regnamespace
            AND c.relname = ANY (tables)
            AND a.attnum > 0
            AND NOT a.attisdropped
        UNION ALL
        SELECT format('COMMENT ON TABLE %I IS NULL', c.relname)
        FROM pg_class AS c
        WHERE
            c.relnamespace = quote_ident(current_schema())::regnamespace
            AND c.relname = ANY (tables)
    LOOP
        EXECUTE statement;
    END LOOP;
END;
$$;
