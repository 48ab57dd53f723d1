-- What every table, column, function and trigger is for, with unit and form, in the catalog: psql shows it (\d+, \df+),
-- and sqlc carries it into the models of package db. An object that a later migration makes brings its own
-- comment; a test holds that none is without. Comments lock no rows, and a table only against other changes of it.
--
-- The tables of FlowFabric in an adopted database get theirs too: nothing of FlowFabric reads comments.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: comments on ff_exec_core
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
    'Execution policy given at creation, an object: retry_policy {max_retries, backoff {type fixed, delay_ms} or {type exponential, initial_delay_ms, max_delay_ms, multiplier, jitter}, retryable_categories}, timeout_policy {attempt_timeout_ms, execution_deadline_ms, max_reclaim_count}, routing_requirements {required_capabilities} and others. NULL: none given.';
COMMENT ON COLUMN ff_exec_core.raw_fields IS
    'Object. Written at creation: namespace, execution_kind, creator_identity, idempotency_key, payload_encoding, tags (object of strings), last_mutation_at and total_attempt_count (decimal numbers in strings). Later: tags.<key>, progress_pct, progress_message, blocking_detail; at a terminal failure failure_reason, failure_category, last_failure_message. Only FlowFabric: terminal_outcome, retry_count, delay_until, current_attempt_id, current_lease_id, current_waitpoint_id, claim_grant and others, all possibly stale. Keys that nobody here knows are kept.';
COMMENT ON COLUMN ff_exec_core.started_at_ms IS
    'Milliseconds since the Unix epoch: its first claim ever; NULL before it. Not cleared by later attempts.';
COMMENT ON COLUMN ff_exec_core.lease_reclaim_count IS
    'How many of its leases ran out; above the policy''s max_reclaim_count it fails.';
COMMENT ON COLUMN ff_exec_core.ffx_last_mutation_at_ms IS
    'Milliseconds since the Unix epoch: the last change other than a renewal. NULL: never written by this library; raw_fields.last_mutation_at may be later.';
COMMENT ON COLUMN ff_exec_core.ffx_attempt_count IS
    'Attempts made. NULL: never written by this library.';
COMMENT ON COLUMN ff_exec_core.ffx_retry_count IS
    'Retries scheduled; 0 again after a replay. NULL: never written by this library.';
COMMENT ON COLUMN ff_exec_core.ffx_lease_epoch IS
    'The greatest fencing token ever given to a lease of it; the next lease gets a greater one. Equal to the current attempt''s lease_epoch unless FlowFabric claimed since. NULL: never written by this library.';
COMMENT ON COLUMN ff_exec_core.ffx_delay_until_ms IS
    'Milliseconds since the Unix epoch: when a delayed one wakes up; NULL when it is not delayed.';
COMMENT ON COLUMN ff_exec_core.ffx_execution_deadline_ms IS
    'Milliseconds since the Unix epoch: the deadline. 0: none. Negative: the deadline, negated when it ended, so that no job looks at it again. NULL: never written by this library.';
COMMENT ON COLUMN ff_exec_core.ffx_namespace IS
    'Generated from raw_fields.namespace, its first 1024 bytes; events carry it.';
COMMENT ON COLUMN ff_exec_core.ffx_instance_tag IS
    'Generated from the tag cairn.instance_id, its first 1024 bytes; events carry it.';
COMMENT ON COLUMN ff_exec_core.ffx_budget_ids IS
    'Budgets that have to admit it, sorted; NULL: none.';
COMMENT ON COLUMN ff_exec_core.ffx_quota_policy_id IS
    'Quota policy that has to admit it; NULL: none.';
COMMENT ON COLUMN ff_exec_core.ffx_quota_partition IS
    'partition_key of that quota policy.';
COMMENT ON COLUMN ff_exec_core.ffx_gate_id IS
    'Budget or quota policy that it waits for at the moment; NULL unless it is blocked by one.';
COMMENT ON COLUMN ff_exec_core.ffx_admitted IS
    'Whether the budgets and the quota have let it in; NULL: not asked, or given back.';
COMMENT ON TRIGGER ffx_ff_exec_core_fill_ready_trg ON ff_exec_core IS
    'Puts inserted executions that are claimable into the queue, ffx_ready, a statement at a time.';
COMMENT ON TRIGGER ffx_ff_exec_core_keep_ready_trg ON ff_exec_core IS
    'Keeps the queue entry of an execution in step with it: in when it becomes claimable, out when it no longer is, moved when its lane, priority or age changes. A claim by this library takes its entry out itself and does not fire it.';
COMMENT ON TRIGGER ffx_ff_exec_core_drop_ready_trg ON ff_exec_core IS
    'Takes the queue entry of a deleted execution out.';

-- object: comments on ff_attempt
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
    'Milliseconds since the Unix epoch: start of the last lease; some claims of FlowFabric keep the first one.';
COMMENT ON COLUMN ff_attempt.terminal_at_ms IS
    'Milliseconds since the Unix epoch: when the attempt ended. Alone it proves nothing: FlowFabric keeps it when it claims the row again.';
COMMENT ON COLUMN ff_attempt.outcome IS
    'How the last lease ended; NULL: leased, or never leased. Over: success, failed (FlowFabric also failure), retry (another attempt follows), cancelled, expired, skipped, interrupted_reclaimed, and interrupted with a terminal_at_ms (timed out). To go on: interrupted (delayed), waiting_children, attempt_interrupted (suspended), lease_expired_reclaimable.';
COMMENT ON COLUMN ff_attempt.usage IS
    'Reserved: nobody writes or reads it.';
COMMENT ON COLUMN ff_attempt.policy IS
    'Attempt policy that a claim of FlowFabric brought, the caller''s JSON; NULL: none.';
COMMENT ON COLUMN ff_attempt.raw_fields IS
    'Object. failure_reason and failure_category of a failure that was retried; from FlowFabric attempt_type, attempt_id, lease_id, which hold where lease_epoch is not the execution''s ffx_lease_epoch.';
COMMENT ON COLUMN ff_attempt.ffx_attempt_type IS
    'Why it was made: initial, retry, reclaim, replay or fallback. NULL: by FlowFabric, see raw_fields.';
COMMENT ON COLUMN ff_attempt.ffx_attempt_id IS
    'Id of the attempt. NULL: by FlowFabric, see raw_fields.';
COMMENT ON COLUMN ff_attempt.ffx_lease_id IS
    'Id of its last lease by this library. NULL: by FlowFabric, see raw_fields.';
COMMENT ON COLUMN ff_attempt.ffx_timeout_at_ms IS
    'Milliseconds since the Unix epoch: when the attempt times out, whatever its lease; NULL: no timeout, or no lease. Belongs to a lease whose epoch is the execution''s ffx_lease_epoch.';
COMMENT ON COLUMN ff_attempt.ffx_delay_until_ms IS
    'Milliseconds since the Unix epoch: the wake-up that was chosen when it was retried, delayed or released; NULL after the next claim.';
COMMENT ON COLUMN ff_attempt.ffx_stream_ts_ms IS
    'Milliseconds since the Unix epoch: ts_ms of its newest stream frame by this library; NULL: none yet.';
COMMENT ON COLUMN ff_attempt.ffx_stream_seq IS
    'seq of its newest stream frame by this library.';
COMMENT ON COLUMN ff_attempt.ffx_stream_frames IS
    'Stream frames appended in all, trimmed ones included.';
COMMENT ON TRIGGER ffx_ff_attempt_watch_new_trg ON ff_attempt IS
    'Sets a lease timer for an attempt that another program inserts with a lease; the claims of this library set theirs themselves.';
COMMENT ON TRIGGER ffx_ff_attempt_watch_trg ON ff_attempt IS
    'Sets a lease timer when another program gives an attempt a lease or shortens it.';

-- object: comments on ff_flow_core
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
    'Object: flow_kind, namespace (default when missing), node_count, edge_count, last_mutation_at_ms (numbers, the last in milliseconds), cancellation_policy, cancel_reason. A top-level key with a dot in it and a string as value is a tag of the flow.';

-- object: comments on ff_flow_summary
COMMENT ON TABLE ff_flow_summary IS
    'Counts of a flow''s members, written whole by FlowFabric''s project_flow_summary; for display, possibly old, never a guard. A flow without members has no row. This library does not write it.';
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

-- object: comments on ff_edge
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
    'Object: dependency_kind (default success_only), satisfaction_condition all_required, data_passing_ref, edge_state (pending, applied, satisfied, impossible), created_at_ms, created_by, staged_at_ms, applied_at_ms (null until it is applied). Rewritten when the edge is applied and when its upstream ends.';
COMMENT ON COLUMN ff_edge.policy_version IS
    'Reserved: always 0.';

-- object: comments on ff_edge_group
COMMENT ON TABLE ff_edge_group IS
    'One row per member that waits for others: how many of its upstreams ended how. The four counts together are the edges applied into it.';
COMMENT ON COLUMN ff_edge_group.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_edge_group.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_edge_group.downstream_eid IS
    'Member that waits, the uuid half of its id.';
COMMENT ON COLUMN ff_edge_group.policy IS
    'When it may run, exactly one of {"kind":"all_of"}, {"kind":"any_of","on_satisfied":S}, {"kind":"quorum","k":N,"on_satisfied":S}; S is cancel_remaining or let_run.';
COMMENT ON COLUMN ff_edge_group.k_target IS
    'Successes that satisfy the group: 1, k or the number of edges. 0: by FlowFabric, which never writes it; derived from policy.';
COMMENT ON COLUMN ff_edge_group.success_count IS
    'Upstreams that ended with success.';
COMMENT ON COLUMN ff_edge_group.fail_count IS
    'Upstreams that ended otherwise: failed, cancelled, expired.';
COMMENT ON COLUMN ff_edge_group.skip_count IS
    'Upstreams that were skipped.';
COMMENT ON COLUMN ff_edge_group.running_count IS
    'Upstreams that have not ended.';
COMMENT ON COLUMN ff_edge_group.cancel_siblings_pending_flag IS
    'Whether the upstreams that are no longer needed still have to be cancelled.';
COMMENT ON COLUMN ff_edge_group.cancel_siblings_pending_members IS
    'Those upstreams, bare uuids as text.';

-- object: comments on ff_pending_cancel_groups
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

-- object: comments on ff_cancel_dispatch_outbox
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

-- object: comments on ff_cancel_backlog
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
    'The caller''s text: cancel_flow_only, cancel_all or cancel_pending.';
COMMENT ON COLUMN ff_cancel_backlog.status IS
    'Always pending.';

-- object: comments on ff_cancel_backlog_member
COMMENT ON TABLE ff_cancel_backlog_member IS
    'One row per member of a cancelled flow that has not acknowledged it.';
COMMENT ON COLUMN ff_cancel_backlog_member.partition_key IS
    'Logical shard of the flow, 0 to 255: CRC16 of its uuid modulo 256. Its members, edges and groups share it.';
COMMENT ON COLUMN ff_cancel_backlog_member.flow_id IS
    'The flow.';
COMMENT ON COLUMN ff_cancel_backlog_member.execution_id IS
    'The member, its whole id {fp:N}:<uuid> as text.';

-- object: comments on ff_suspension_current
COMMENT ON TABLE ff_suspension_current IS
    'The latest suspension of an execution. It may outlive the resume: it counts only while the execution is suspended.';
COMMENT ON COLUMN ff_suspension_current.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ff_suspension_current.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_suspension_current.suspension_id IS
    'Id of the suspension.';
COMMENT ON COLUMN ff_suspension_current.suspended_at_ms IS
    'Milliseconds since the Unix epoch: when it was suspended.';
COMMENT ON COLUMN ff_suspension_current.timeout_at_ms IS
    'Milliseconds since the Unix epoch: when timeout_behavior applies; NULL: never, or the suspension is satisfied.';
COMMENT ON COLUMN ff_suspension_current.reason_code IS
    'waiting_for_signal, waiting_for_approval, waiting_for_callback, waiting_for_tool_result, waiting_for_operator_review, paused_by_policy, paused_by_budget, step_boundary or manual_pause; NULL: none given.';
COMMENT ON COLUMN ff_suspension_current.condition IS
    'What resumes it: {"Single":{waitpoint_key,matcher}}, "OperatorOnly", "TimeoutOnly", {"Composite":{"kind":"AllOf",members}} or {"Composite":{"kind":"Count",n,count_kind,matcher,waitpoints}}; matcher is {"ByName":S} or "Wildcard"; at most four levels.';
COMMENT ON COLUMN ff_suspension_current.satisfied_set IS
    'Array of the ids of the signals that satisfied it; FlowFabric leaves it empty.';
COMMENT ON COLUMN ff_suspension_current.member_map IS
    'Signals delivered: an object by waitpoint key, each an array in order of delivery of {signal_id, signal_name, signal_category, source_type, source_identity, correlation_id, accepted_at (ms), payload_hex}. FlowFabric also stores the key __timeout__ and, for an expired waitpoint, an object instead of the array.';
COMMENT ON COLUMN ff_suspension_current.timeout_behavior IS
    'fail, cancel, expire, auto_resume_with_timeout_signal or escalate; NULL or unknown: fail.';
COMMENT ON COLUMN ff_suspension_current.ffx_primary_waitpoint_id IS
    'The waitpoint that is shown for it. NULL: never written by this library.';
COMMENT ON COLUMN ff_suspension_current.ffx_resume_delay_ms IS
    'Milliseconds that it waits on after it was satisfied; NULL: none.';
COMMENT ON COLUMN ff_suspension_current.ffx_requested_by IS
    'Who asked for the suspension; NULL: nobody said.';
COMMENT ON COLUMN ff_suspension_current.ffx_continuation_pointer IS
    'Where the handler goes on, its own text; NULL: none.';

-- object: comments on ff_waitpoint_pending
COMMENT ON TABLE ff_waitpoint_pending IS
    'Open waitpoints: what a signal can be sent to. Rows go when the suspension is satisfied or the waitpoint expires.';
COMMENT ON COLUMN ff_waitpoint_pending.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ff_waitpoint_pending.waitpoint_id IS
    'Id of the waitpoint.';
COMMENT ON COLUMN ff_waitpoint_pending.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_waitpoint_pending.token_kid IS
    'kid in ff_waitpoint_hmac of the key that signed token.';
COMMENT ON COLUMN ff_waitpoint_pending.token IS
    'Bearer secret, <kid>:<64 hex digits>: whoever has it can resume the execution. Never log it.';
COMMENT ON COLUMN ff_waitpoint_pending.created_at_ms IS
    'Milliseconds since the Unix epoch: when it was made.';
COMMENT ON COLUMN ff_waitpoint_pending.expires_at_ms IS
    'Milliseconds since the Unix epoch: when it expires; NULL: never.';
COMMENT ON COLUMN ff_waitpoint_pending.condition IS
    'Reserved by FlowFabric; this library keeps signals in it that come before the suspension. NULL: none.';
COMMENT ON COLUMN ff_waitpoint_pending.waitpoint_key IS
    'Name within the execution, and key of member_map; empty: none.';
COMMENT ON COLUMN ff_waitpoint_pending.state IS
    'pending (made ahead of the suspension) or active.';
COMMENT ON COLUMN ff_waitpoint_pending.required_signal_names IS
    'Names of signals that can satisfy it; empty: any. __operator_only__ and __timeout_only__: none can.';
COMMENT ON COLUMN ff_waitpoint_pending.activated_at_ms IS
    'Milliseconds since the Unix epoch: when a suspension took it up; NULL: not yet.';

-- object: comments on ff_waitpoint_hmac
COMMENT ON TABLE ff_waitpoint_hmac IS
    'Keys that sign waitpoint tokens. The active one with the greatest rotated_at_ms signs, the others verify.';
COMMENT ON COLUMN ff_waitpoint_hmac.kid IS
    'Id of the key; has no colon.';
COMMENT ON COLUMN ff_waitpoint_hmac.secret IS
    'The key, raw bytes. Whoever reads it can forge tokens.';
COMMENT ON COLUMN ff_waitpoint_hmac.rotated_at_ms IS
    'Milliseconds since the Unix epoch: when it became the signing key.';
COMMENT ON COLUMN ff_waitpoint_hmac.active IS
    'Whether it may sign.';
COMMENT ON COLUMN ff_waitpoint_hmac.ffx_verify_until_ms IS
    'Milliseconds since the Unix epoch: until when an inactive key still verifies. NULL: active, or retired by FlowFabric, which lets its keys verify for ever.';

-- object: comments on ff_suspend_dedup
COMMENT ON TABLE ff_suspend_dedup IS
    'Outcomes of suspensions by idempotency key. They contain bearer tokens.';
COMMENT ON COLUMN ff_suspend_dedup.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ff_suspend_dedup.idempotency_key IS
    'The caller''s key, unique within a partition.';
COMMENT ON COLUMN ff_suspend_dedup.outcome_json IS
    'Object: variant (Suspended, AlreadySatisfied), details {suspension_id, waitpoint_id, waitpoint_key, token, extras}, handle_opaque_hex; by this library also execution_id and expires_at_ms.';
COMMENT ON COLUMN ff_suspend_dedup.created_at_ms IS
    'Milliseconds since the Unix epoch: when the suspension was made.';

-- object: comments on ff_stream_frame
COMMENT ON TABLE ff_stream_frame IS
    'Frames of the output streams of attempts, appended only. The id of a frame is <ts_ms>-<seq>.';
COMMENT ON COLUMN ff_stream_frame.partition_key IS
    'Logical shard: that of the execution, modulo 256.';
COMMENT ON COLUMN ff_stream_frame.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_stream_frame.attempt_index IS
    'Attempt that wrote it, from 0.';
COMMENT ON COLUMN ff_stream_frame.ts_ms IS
    'Milliseconds since the Unix epoch: when it was appended; never falls within an attempt.';
COMMENT ON COLUMN ff_stream_frame.seq IS
    'Number within (attempt, ts_ms), from 0.';
COMMENT ON COLUMN ff_stream_frame.fields IS
    'Object: frame_type (stdout, stderr, event, blob or the caller''s), payload (UTF-8 text), encoding utf8, source worker, correlation_id when given.';
COMMENT ON COLUMN ff_stream_frame.mode IS
    'durable, summary or best_effort; only the last is trimmed.';
COMMENT ON COLUMN ff_stream_frame.created_at_ms IS
    'Milliseconds since the Unix epoch: equal to ts_ms.';
COMMENT ON TRIGGER ff_stream_frame_notify_trg ON ff_stream_frame IS
    'Notifies channel ff_stream_<execution uuid>_<attempt_index> of each stream once a statement, with an empty payload; not where the setting ffx.defer_notify is on.';

-- object: comments on ff_stream_summary
COMMENT ON TABLE ff_stream_summary IS
    'The merged document of the summary frames of an attempt.';
COMMENT ON COLUMN ff_stream_summary.partition_key IS
    'Logical shard: that of the execution, modulo 256.';
COMMENT ON COLUMN ff_stream_summary.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_stream_summary.attempt_index IS
    'Attempt, from 0.';
COMMENT ON COLUMN ff_stream_summary.document_json IS
    'Object: the frames of mode summary merged in order, as JSON merge patches; __ff_null__ in a patch stores null.';
COMMENT ON COLUMN ff_stream_summary.version IS
    'Patches merged in; 1 after the first.';
COMMENT ON COLUMN ff_stream_summary.patch_kind IS
    'json-merge-patch; anything else, and NULL, reads as that.';
COMMENT ON COLUMN ff_stream_summary.last_updated_ms IS
    'Milliseconds since the Unix epoch: the last patch.';
COMMENT ON COLUMN ff_stream_summary.first_applied_ms IS
    'Milliseconds since the Unix epoch: the first patch.';

-- object: comments on ff_stream_meta
COMMENT ON TABLE ff_stream_meta IS
    'Rate of an attempt''s stream, by which frames of mode best_effort are trimmed.';
COMMENT ON COLUMN ff_stream_meta.partition_key IS
    'Logical shard: that of the execution, modulo 256.';
COMMENT ON COLUMN ff_stream_meta.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_stream_meta.attempt_index IS
    'Attempt, from 0.';
COMMENT ON COLUMN ff_stream_meta.ema_rate_hz IS
    'Frames per second, a moving average.';
COMMENT ON COLUMN ff_stream_meta.last_append_ts_ms IS
    'Milliseconds since the Unix epoch: the last frame; 0: none.';
COMMENT ON COLUMN ff_stream_meta.maxlen_applied_last IS
    'Frames kept at the last trimming.';

-- object: comments on ff_completion_event
COMMENT ON TABLE ff_completion_event IS
    'Outbox of ends: a row for each execution that ended, inserted by the transaction that ended it. Dependencies are resolved from it.';
COMMENT ON COLUMN ff_completion_event.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ff_completion_event.event_id IS
    'Position in this outbox, in order of allocation, not of commit. One sequence serves all partitions; a cursor of another outbox means nothing here.';
COMMENT ON COLUMN ff_completion_event.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_completion_event.flow_id IS
    'Flow of the execution; NULL: no flow, and nothing depends on it.';
COMMENT ON COLUMN ff_completion_event.outcome IS
    'success, failed, cancelled, expired or skipped. resumable: a suspension was satisfied, which is no end.';
COMMENT ON COLUMN ff_completion_event.namespace IS
    'Namespace of the execution, its first 1024 bytes; NULL when it has none. Readers filter by it.';
COMMENT ON COLUMN ff_completion_event.instance_tag IS
    'Value of the execution''s tag cairn.instance_id, its first 1024 bytes; NULL when it has none. Readers filter by it.';
COMMENT ON COLUMN ff_completion_event.occurred_at_ms IS
    'Milliseconds since the Unix epoch: when it ended.';
COMMENT ON COLUMN ff_completion_event.committed_at_ms IS
    'Milliseconds since the Unix epoch: when the row was inserted; not when it was committed.';
COMMENT ON COLUMN ff_completion_event.dispatched_at_ms IS
    'Milliseconds since the Unix epoch: when its dependents were resolved; NULL: not yet.';
COMMENT ON TRIGGER ff_completion_event_notify_trg ON ff_completion_event IS
    'Notifies channel ff_completion once a statement, with an empty payload; not where the setting ffx.defer_notify is on, whose transaction notifies by itself after its commit.';
COMMENT ON TRIGGER ffx_ff_completion_event_floor_trg ON ff_completion_event IS
    'After rows are deleted, notes the greatest deleted event_id in ffx_outbox_floor.';
COMMENT ON TRIGGER ffx_ff_completion_event_truncate_trg ON ff_completion_event IS
    'Before a truncation, raises the floor in ffx_outbox_floor to the last event_id given out.';

-- object: comments on ff_lease_event
COMMENT ON TABLE ff_lease_event IS
    'Outbox of leases: a row for each lease taken, renewed, given back or lost, inserted by the transaction that did it.';
COMMENT ON COLUMN ff_lease_event.event_id IS
    'Position in this outbox, in order of allocation, not of commit. One sequence serves all partitions; a cursor of another outbox means nothing here.';
COMMENT ON COLUMN ff_lease_event.execution_id IS
    'The execution, a bare uuid as text.';
COMMENT ON COLUMN ff_lease_event.lease_id IS
    'Id of the lease, a uuid as text; NULL where FlowFabric kept none.';
COMMENT ON COLUMN ff_lease_event.event_type IS
    'acquired, renewed, reclaimed, expired or revoked; the last also when the holder settles it.';
COMMENT ON COLUMN ff_lease_event.occurred_at_ms IS
    'Milliseconds since the Unix epoch: when it happened.';
COMMENT ON COLUMN ff_lease_event.partition_key IS
    'Logical shard of the execution. integer here, where other tables have smallint: FlowFabric decodes the exact type.';
COMMENT ON COLUMN ff_lease_event.namespace IS
    'Namespace of the execution, its first 1024 bytes; NULL when it has none. Readers filter by it.';
COMMENT ON COLUMN ff_lease_event.instance_tag IS
    'Value of the execution''s tag cairn.instance_id, its first 1024 bytes; NULL when it has none. Readers filter by it.';
COMMENT ON COLUMN ff_lease_event.ffx_worker_instance_id IS
    'Process that has or had the lease. NULL: written by FlowFabric.';
COMMENT ON COLUMN ff_lease_event.ffx_revoked_by IS
    'Who took a revoked lease; NULL: not revoked, or written by FlowFabric.';
COMMENT ON TRIGGER ff_lease_event_notify_trg ON ff_lease_event IS
    'Notifies channel ff_lease_event once a statement, with an empty payload; not where the setting ffx.defer_notify is on, whose transaction notifies by itself after its commit.';
COMMENT ON TRIGGER ffx_ff_lease_event_floor_trg ON ff_lease_event IS
    'After rows are deleted, notes the greatest deleted event_id in ffx_outbox_floor.';
COMMENT ON TRIGGER ffx_ff_lease_event_truncate_trg ON ff_lease_event IS
    'Before a truncation, raises the floor in ffx_outbox_floor to the last event_id given out.';

-- object: comments on ff_signal_event
COMMENT ON TABLE ff_signal_event IS
    'Outbox of signals: a row for each signal delivered, inserted by the transaction that delivered it.';
COMMENT ON COLUMN ff_signal_event.event_id IS
    'Position in this outbox, in order of allocation, not of commit. One sequence serves all partitions; a cursor of another outbox means nothing here.';
COMMENT ON COLUMN ff_signal_event.execution_id IS
    'The execution, a bare uuid as text.';
COMMENT ON COLUMN ff_signal_event.signal_id IS
    'Id of the signal, a uuid as text.';
COMMENT ON COLUMN ff_signal_event.waitpoint_id IS
    'Waitpoint that it was sent to, a uuid as text; NULL: none.';
COMMENT ON COLUMN ff_signal_event.source_identity IS
    'Who sent it; NULL: nobody said.';
COMMENT ON COLUMN ff_signal_event.delivered_at_ms IS
    'Milliseconds since the Unix epoch: when it was delivered.';
COMMENT ON COLUMN ff_signal_event.partition_key IS
    'Logical shard of the execution. integer here, where other tables have smallint: FlowFabric decodes the exact type.';
COMMENT ON COLUMN ff_signal_event.namespace IS
    'Namespace of the execution, its first 1024 bytes; NULL when it has none. Readers filter by it.';
COMMENT ON COLUMN ff_signal_event.instance_tag IS
    'Value of the execution''s tag cairn.instance_id, its first 1024 bytes; NULL when it has none. Readers filter by it.';
COMMENT ON COLUMN ff_signal_event.ffx_effect IS
    'What it did to the suspension: satisfied, buffered or appended. NULL: written by FlowFabric.';
COMMENT ON TRIGGER ff_signal_event_notify_trg ON ff_signal_event IS
    'Notifies channel ff_signal_event once a statement, with an empty payload; not where the setting ffx.defer_notify is on, whose transaction notifies by itself after its commit.';
COMMENT ON TRIGGER ffx_ff_signal_event_floor_trg ON ff_signal_event IS
    'After rows are deleted, notes the greatest deleted event_id in ffx_outbox_floor.';
COMMENT ON TRIGGER ffx_ff_signal_event_truncate_trg ON ff_signal_event IS
    'Before a truncation, raises the floor in ffx_outbox_floor to the last event_id given out.';

-- object: comments on ff_operator_event
COMMENT ON TABLE ff_operator_event IS
    'Outbox of what operators did, inserted by the transaction that did it.';
COMMENT ON COLUMN ff_operator_event.event_id IS
    'Position in this outbox, in order of allocation, not of commit. One sequence serves all partitions; a cursor of another outbox means nothing here.';
COMMENT ON COLUMN ff_operator_event.execution_id IS
    'The execution, a bare uuid as text; of flow_cancel_requested the flow.';
COMMENT ON COLUMN ff_operator_event.event_type IS
    'priority_changed, replayed or flow_cancel_requested.';
COMMENT ON COLUMN ff_operator_event.details IS
    'Object. priority_changed: old_priority, new_priority. replayed: branch (normal or skipped_flow_member), groups_reset. flow_cancel_requested: flow_id, cancellation_policy, reason, member_count.';
COMMENT ON COLUMN ff_operator_event.occurred_at_ms IS
    'Milliseconds since the Unix epoch: when it happened.';
COMMENT ON COLUMN ff_operator_event.partition_key IS
    'Logical shard of the execution or flow. integer here, where other tables have smallint: FlowFabric decodes the exact type.';
COMMENT ON COLUMN ff_operator_event.namespace IS
    'Namespace of the execution, its first 1024 bytes; NULL when it has none. Readers filter by it.';
COMMENT ON COLUMN ff_operator_event.instance_tag IS
    'Value of the execution''s tag cairn.instance_id, its first 1024 bytes; NULL when it has none. Readers filter by it.';
COMMENT ON TRIGGER ff_operator_event_notify_trg ON ff_operator_event IS
    'Notifies channel ff_operator_event once a statement, with an empty payload; not where the setting ffx.defer_notify is on, whose transaction notifies by itself after its commit.';
COMMENT ON TRIGGER ffx_ff_operator_event_floor_trg ON ff_operator_event IS
    'After rows are deleted, notes the greatest deleted event_id in ffx_outbox_floor.';
COMMENT ON TRIGGER ffx_ff_operator_event_truncate_trg ON ff_operator_event IS
    'Before a truncation, raises the floor in ffx_outbox_floor to the last event_id given out.';

-- object: comments on ff_claim_grant
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

-- object: comments on ff_budget_policy
COMMENT ON TABLE ff_budget_policy IS
    'Budgets: limits on accumulated amounts.';
COMMENT ON COLUMN ff_budget_policy.partition_key IS
    'Logical shard of the budget: CRC16 of its uuid modulo 32. Not that of an execution.';
COMMENT ON COLUMN ff_budget_policy.budget_id IS
    'Id of the budget, a bare uuid as text.';
COMMENT ON COLUMN ff_budget_policy.policy_json IS
    'Object: hard_limits and soft_limits (dimension to number, 0: no limit), reset_interval_ms, on_hard_limit, on_soft_limit. Older rows: hard_limit, dimension.';
COMMENT ON COLUMN ff_budget_policy.created_at_ms IS
    'Milliseconds since the Unix epoch: when it was created.';
COMMENT ON COLUMN ff_budget_policy.updated_at_ms IS
    'Milliseconds since the Unix epoch: the last change, breach or reset.';
COMMENT ON COLUMN ff_budget_policy.scope_type IS
    'Free text: flow, namespace, tenant, lane, global; empty: none.';
COMMENT ON COLUMN ff_budget_policy.scope_id IS
    'Free text: which of scope_type.';
COMMENT ON COLUMN ff_budget_policy.enforcement_mode IS
    'Free text, never interpreted: strict, warn, hard; empty: none.';
COMMENT ON COLUMN ff_budget_policy.breach_count IS
    'Times that a hard limit was met.';
COMMENT ON COLUMN ff_budget_policy.soft_breach_count IS
    'Times that a soft limit was met.';
COMMENT ON COLUMN ff_budget_policy.last_breach_at_ms IS
    'Milliseconds since the Unix epoch: the last hard breach; NULL: none since the last reset.';
COMMENT ON COLUMN ff_budget_policy.last_breach_dim IS
    'Dimension of the last hard breach.';
COMMENT ON COLUMN ff_budget_policy.next_reset_at_ms IS
    'Milliseconds since the Unix epoch: when its usage goes back to 0; NULL: never.';

-- object: comments on ff_budget_usage
COMMENT ON TABLE ff_budget_usage IS
    'What was used of a budget, by dimension.';
COMMENT ON COLUMN ff_budget_usage.partition_key IS
    'Logical shard of the budget: CRC16 of its uuid modulo 32. Not that of an execution.';
COMMENT ON COLUMN ff_budget_usage.budget_id IS
    'The budget, a bare uuid as text.';
COMMENT ON COLUMN ff_budget_usage.dimensions_key IS
    'Name of the dimension, as tokens or cents. A row named _init means nothing.';
COMMENT ON COLUMN ff_budget_usage.current_value IS
    'Amount used since the last reset.';
COMMENT ON COLUMN ff_budget_usage.last_reset_at_ms IS
    'Milliseconds since the Unix epoch: the last reset; NULL: none.';
COMMENT ON COLUMN ff_budget_usage.updated_at_ms IS
    'Milliseconds since the Unix epoch: the last change.';

-- object: comments on ff_budget_usage_dedup
COMMENT ON TABLE ff_budget_usage_dedup IS
    'Outcomes of reports of usage by deduplication key.';
COMMENT ON COLUMN ff_budget_usage_dedup.partition_key IS
    'Logical shard of the budget: CRC16 of its uuid modulo 32. Not that of an execution.';
COMMENT ON COLUMN ff_budget_usage_dedup.dedup_key IS
    '<budget id>|<operation>|<the caller''s key>; FlowFabric stores the caller''s key alone.';
COMMENT ON COLUMN ff_budget_usage_dedup.outcome_json IS
    'Object: kind (Ok, AlreadyApplied, SoftBreach, HardBreach), of a breach dimension, current_usage and the limit; by this library also budget_id and op. Empty: under way.';
COMMENT ON COLUMN ff_budget_usage_dedup.applied_at_ms IS
    'Milliseconds since the Unix epoch: when the report was applied.';
COMMENT ON COLUMN ff_budget_usage_dedup.expires_at_ms IS
    'Milliseconds since the Unix epoch: when the key may be used anew, a day later.';

-- object: comments on ff_budget_usage_by_exec
COMMENT ON TABLE ff_budget_usage_by_exec IS
    'What each execution spent of a budget, so that it can be given back.';
COMMENT ON COLUMN ff_budget_usage_by_exec.partition_key IS
    'Logical shard of the budget: CRC16 of its uuid modulo 32. Not that of an execution.';
COMMENT ON COLUMN ff_budget_usage_by_exec.budget_id IS
    'The budget, a bare uuid as text.';
COMMENT ON COLUMN ff_budget_usage_by_exec.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ff_budget_usage_by_exec.dimensions_key IS
    'Name of the dimension, as tokens or cents.';
COMMENT ON COLUMN ff_budget_usage_by_exec.delta_total IS
    'Amount spent.';
COMMENT ON COLUMN ff_budget_usage_by_exec.updated_at_ms IS
    'Milliseconds since the Unix epoch: the last change.';

-- object: comments on ff_quota_policy
COMMENT ON TABLE ff_quota_policy IS
    'Quota policies: limits per time window and on concurrency.';
COMMENT ON COLUMN ff_quota_policy.partition_key IS
    'Logical shard of the quota policy: CRC16 of its uuid modulo 32. Not that of an execution.';
COMMENT ON COLUMN ff_quota_policy.quota_policy_id IS
    'Id of the policy, a bare uuid as text.';
COMMENT ON COLUMN ff_quota_policy.requests_per_window_seconds IS
    'Length of the window in seconds, whatever its name says.';
COMMENT ON COLUMN ff_quota_policy.max_requests_per_window IS
    'Admissions within a window; 0: no limit.';
COMMENT ON COLUMN ff_quota_policy.active_concurrency_cap IS
    'Slots held at once; 0: no limit.';
COMMENT ON COLUMN ff_quota_policy.active_concurrency IS
    'Slots held, a count that FlowFabric keeps; here the slots are the rows of ff_quota_admitted.';
COMMENT ON COLUMN ff_quota_policy.created_at_ms IS
    'Milliseconds since the Unix epoch: when it was created.';
COMMENT ON COLUMN ff_quota_policy.updated_at_ms IS
    'Milliseconds since the Unix epoch: the last change.';

-- object: comments on ff_quota_window
COMMENT ON TABLE ff_quota_window IS
    'One row per admission by a quota policy within its window.';
COMMENT ON COLUMN ff_quota_window.partition_key IS
    'Logical shard of the quota policy: CRC16 of its uuid modulo 32. Not that of an execution.';
COMMENT ON COLUMN ff_quota_window.quota_policy_id IS
    'The policy, a bare uuid as text.';
COMMENT ON COLUMN ff_quota_window.dimension IS
    'Always empty.';
COMMENT ON COLUMN ff_quota_window.admitted_at_ms IS
    'Milliseconds since the Unix epoch: when it was admitted.';
COMMENT ON COLUMN ff_quota_window.execution_id IS
    'The execution, its whole id {fp:N}:<uuid> as text.';

-- object: comments on ff_quota_admitted
COMMENT ON TABLE ff_quota_admitted IS
    'One row per slot that an execution holds of a quota policy.';
COMMENT ON COLUMN ff_quota_admitted.partition_key IS
    'Logical shard of the quota policy: CRC16 of its uuid modulo 32. Not that of an execution.';
COMMENT ON COLUMN ff_quota_admitted.quota_policy_id IS
    'The policy, a bare uuid as text.';
COMMENT ON COLUMN ff_quota_admitted.execution_id IS
    'The execution, its whole id {fp:N}:<uuid> as text.';
COMMENT ON COLUMN ff_quota_admitted.admitted_at_ms IS
    'Milliseconds since the Unix epoch: when it was admitted.';
COMMENT ON COLUMN ff_quota_admitted.expires_at_ms IS
    'Milliseconds since the Unix epoch: the end of the window that it was admitted in.';

-- object: comments on ff_worker_registry
COMMENT ON TABLE ff_worker_registry IS
    'Worker processes. One is alive while last_heartbeat_ms + liveness_ttl_ms is not past.';
COMMENT ON COLUMN ff_worker_registry.partition_key IS
    'Logical shard of the worker: FNV-1a of worker_instance_id modulo 256.';
COMMENT ON COLUMN ff_worker_registry.namespace IS
    'Namespace that it registered in.';
COMMENT ON COLUMN ff_worker_registry.worker_instance_id IS
    'The process.';
COMMENT ON COLUMN ff_worker_registry.worker_id IS
    'The logical worker.';
COMMENT ON COLUMN ff_worker_registry.lanes IS
    'Lanes that it claims from, sorted.';
COMMENT ON COLUMN ff_worker_registry.capabilities_csv IS
    'Its capabilities, sorted, separated by commas; empty: none.';
COMMENT ON COLUMN ff_worker_registry.last_heartbeat_ms IS
    'Milliseconds since the Unix epoch: its last heartbeat.';
COMMENT ON COLUMN ff_worker_registry.liveness_ttl_ms IS
    'How long a heartbeat counts, in milliseconds.';
COMMENT ON COLUMN ff_worker_registry.registered_at_ms IS
    'Milliseconds since the Unix epoch: its first registration.';

-- object: comments on ff_worker_registry_event
COMMENT ON TABLE ff_worker_registry_event IS
    'What happened to worker processes.';
COMMENT ON COLUMN ff_worker_registry_event.partition_key IS
    'Logical shard of the worker: FNV-1a of worker_instance_id modulo 256.';
COMMENT ON COLUMN ff_worker_registry_event.namespace IS
    'Namespace of the process.';
COMMENT ON COLUMN ff_worker_registry_event.worker_instance_id IS
    'The process.';
COMMENT ON COLUMN ff_worker_registry_event.event_kind IS
    'registered, heartbeat (only by FlowFabric), marked_dead or ttl_swept.';
COMMENT ON COLUMN ff_worker_registry_event.event_at_ms IS
    'Milliseconds since the Unix epoch: when it happened.';
COMMENT ON COLUMN ff_worker_registry_event.reason IS
    'Of marked_dead, at most 256 bytes; else NULL.';

-- object: comments on ff_lane_registry
COMMENT ON TABLE ff_lane_registry IS
    'Lanes that an execution was ever created in.';
COMMENT ON COLUMN ff_lane_registry.lane_id IS
    'The lane: 1 to 64 bytes of ASCII 0x20 to 0x7e.';
COMMENT ON COLUMN ff_lane_registry.registered_at_ms IS
    'Milliseconds since the Unix epoch: the first creation.';
COMMENT ON COLUMN ff_lane_registry.registered_by IS
    'Always create_execution.';

-- object: comments on ff_partition_config
COMMENT ON TABLE ff_partition_config IS
    'One row that FlowFabric writes and nobody reads. Budgets and quotas have 32 partitions, whatever stands here.';
COMMENT ON COLUMN ff_partition_config.singleton_lock IS
    'Always true: there is one row.';
COMMENT ON COLUMN ff_partition_config.num_flow_partitions IS
    'Not read.';
COMMENT ON COLUMN ff_partition_config.num_budget_partitions IS
    'Not read, and not what is used.';
COMMENT ON COLUMN ff_partition_config.num_quota_partitions IS
    'Not read, and not what is used.';
COMMENT ON COLUMN ff_partition_config.ff_version IS
    'Version of FlowFabric that wrote it.';

-- object: comments on ff_migration_annotation
COMMENT ON TABLE ff_migration_annotation IS
    'Notes of FlowFabric''s migrations. Some versions have none: no test of the version.';
COMMENT ON COLUMN ff_migration_annotation.version IS
    'Number of the migration.';
COMMENT ON COLUMN ff_migration_annotation.name IS
    'Its name.';
COMMENT ON COLUMN ff_migration_annotation.applied_at_ms IS
    'Milliseconds since the Unix epoch: when it was applied.';
COMMENT ON COLUMN ff_migration_annotation.backward_compatible IS
    'Whether FlowFabric called it compatible.';

-- object: comments on _sqlx_migrations
-- A database whose tables were made by hand may lack it.
DO $$
BEGIN
    IF to_regclass('_sqlx_migrations') IS NOT NULL THEN
        COMMENT ON TABLE _sqlx_migrations IS
            'FlowFabric''s ledger of migrations. A server of FlowFabric does not start when a row is missing, changed or added.';
        COMMENT ON COLUMN _sqlx_migrations.version IS
            'Number of the migration.';
        COMMENT ON COLUMN _sqlx_migrations.description IS
            'Its name.';
        COMMENT ON COLUMN _sqlx_migrations.installed_on IS
            'When it was applied.';
        COMMENT ON COLUMN _sqlx_migrations.success IS
            'Always true.';
        COMMENT ON COLUMN _sqlx_migrations.checksum IS
            'SHA-384 of its file, 48 bytes.';
        COMMENT ON COLUMN _sqlx_migrations.execution_time IS
            'How long it took, in nanoseconds.';
    END IF;
END;
$$;

-- object: comments on ffx_create_dedup
COMMENT ON TABLE ffx_create_dedup IS
    'Idempotency keys of creations, while their windows last: a repeated creation finds the execution of the first.';
COMMENT ON COLUMN ffx_create_dedup.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ffx_create_dedup.namespace IS
    'Namespace of the key; a key is unique within (partition_key, namespace).';
COMMENT ON COLUMN ffx_create_dedup.idempotency_key IS
    'The caller''s key.';
COMMENT ON COLUMN ffx_create_dedup.execution_id IS
    'The execution that was created with it, the uuid half of its id.';
COMMENT ON COLUMN ffx_create_dedup.expires_at_ms IS
    'Milliseconds since the Unix epoch: when the key may be used anew.';

-- object: comments on ffx_outbox_floor
COMMENT ON TABLE ffx_outbox_floor IS
    'How far each outbox was purged: a reader whose cursor is below has missed events. Kept by triggers.';
COMMENT ON COLUMN ffx_outbox_floor.outbox IS
    'completion, lease, signal or operator.';
COMMENT ON COLUMN ffx_outbox_floor.floor_event_id IS
    'The greatest event_id that was deleted.';
COMMENT ON COLUMN ffx_outbox_floor.updated_at_ms IS
    'Milliseconds since the Unix epoch: when it rose.';

-- object: comments on ffx_outbox_consumer
COMMENT ON TABLE ffx_outbox_consumer IS
    'Cursors of named readers of outboxes.';
COMMENT ON COLUMN ffx_outbox_consumer.outbox IS
    'completion, lease, signal or operator.';
COMMENT ON COLUMN ffx_outbox_consumer.consumer IS
    'Name of the reader.';
COMMENT ON COLUMN ffx_outbox_consumer.event_id IS
    'The last event it has handled, exclusive.';
COMMENT ON COLUMN ffx_outbox_consumer.updated_at_ms IS
    'Milliseconds since the Unix epoch: when it was stored.';

-- object: comments on ffx_ready
COMMENT ON TABLE ffx_ready IS
    'The queue: a row for every claimable execution, in the order of claims. Kept by triggers on ff_exec_core, which stays the truth: a claim trusts no queue entry without the execution''s row.';
COMMENT ON COLUMN ffx_ready.created_at_ms IS
    'Milliseconds since the Unix epoch: when the execution was created; the older is claimed first.';
COMMENT ON COLUMN ffx_ready.rank IS
    'Minus its priority, so that the key is ascending.';
COMMENT ON COLUMN ffx_ready.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_ready.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ffx_ready.lane_id IS
    'Its lane.';
COMMENT ON COLUMN ffx_ready.required_capabilities IS
    'What a worker must have to claim it, all of them.';
COMMENT ON COLUMN ffx_ready.kind IS
    'Its kind, raw_fields.execution_kind; empty: it has none; NULL: not noted, the execution''s row says it.';

-- object: comments on ffx_lease_watch
COMMENT ON TABLE ffx_lease_watch IS
    'Lease timers: when to look at the leases of one claim. One that was renewed gets a later timer, one that was given back is forgotten.';
COMMENT ON COLUMN ffx_lease_watch.due_at_ms IS
    'Milliseconds since the Unix epoch: when to look.';
COMMENT ON COLUMN ffx_lease_watch.watch_id IS
    'Id of the timer.';
COMMENT ON COLUMN ffx_lease_watch.partition_keys IS
    'Of each attempt of the claim its partition_key; the three arrays go together by position.';
COMMENT ON COLUMN ffx_lease_watch.execution_ids IS
    'Of each its execution_id.';
COMMENT ON COLUMN ffx_lease_watch.attempt_indexes IS
    'Of each its attempt_index.';

-- object: comments on ffx_schema_migrations
-- A migrator with a ledger of its own may not have made it.
DO $$
BEGIN
    IF to_regclass('ffx_schema_migrations') IS NOT NULL THEN
        COMMENT ON TABLE ffx_schema_migrations IS
            'Ledger of this library''s migrations. In a database that FlowFabric made it also has a row adopted, and a row <version>/<part> for each part of a migration.';
        COMMENT ON COLUMN ffx_schema_migrations.version IS
            'A migration that was applied, by the 14 digits of its file''s name.';
    END IF;
END;
$$;

-- object: comments on functions
COMMENT ON FUNCTION ff_notify_completion_event() IS
    'FlowFabric''s row-level notification of ff_completion_event; not used by a trigger here: ffx_notify_channel takes its place.';
COMMENT ON FUNCTION ff_notify_lease_event() IS
    'FlowFabric''s row-level notification of ff_lease_event; not used by a trigger here: ffx_notify_channel takes its place.';
COMMENT ON FUNCTION ff_notify_operator_event() IS
    'FlowFabric''s row-level notification of ff_operator_event; not used by a trigger here: ffx_notify_channel takes its place.';
COMMENT ON FUNCTION ff_notify_signal_event() IS
    'FlowFabric''s row-level notification of ff_signal_event; not used by a trigger here: ffx_notify_channel takes its place.';
COMMENT ON FUNCTION ff_notify_stream_frame() IS
    'FlowFabric''s row-level notification of ff_stream_frame; not used by a trigger here: ffx_notify_stream takes its place.';
COMMENT ON FUNCTION ffx_first_kilobyte(text) IS
    'The longest beginning of a text, in whole characters, that has at most 1024 bytes.';
COMMENT ON FUNCTION ffx_fill_ready() IS
    'Trigger: puts inserted executions that are claimable into ffx_ready.';
COMMENT ON FUNCTION ffx_keep_ready() IS
    'Trigger: adds, moves or takes out the queue entry of one execution.';
COMMENT ON FUNCTION ffx_watch_lease() IS
    'Trigger: sets a lease timer for one attempt.';
COMMENT ON FUNCTION ffx_flow_key(uuid) IS
    'Key of the advisory transaction lock of a flow.';
COMMENT ON FUNCTION ffx_now_ms(bigint) IS
    'The given instant, or, of NULL, the start of the statement by the database''s clock: milliseconds since the Unix epoch.';
COMMENT ON FUNCTION ffx_notify_channel() IS
    'Trigger: notifies the channel that its argument names, with an empty payload.';
COMMENT ON FUNCTION ffx_notify_stream() IS
    'Trigger: notifies the channel of each stream that frames were inserted into.';
COMMENT ON FUNCTION ffx_record_floor() IS
    'Trigger: notes the greatest deleted event_id of the outbox that its argument names.';
COMMENT ON FUNCTION ffx_record_truncate() IS
    'Trigger: raises the floor of the outbox that its argument names to the last event_id given out.';
COMMENT ON FUNCTION ffx_usable_from() IS
    'The oldest version of this library that may work on this database, as the newest migration that that version knows.';

-- migrate:down

DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('COMMENT ON TABLE %I IS NULL', c.relname)
        FROM pg_class AS c
        WHERE
            c.relnamespace = quote_ident(current_schema())::regnamespace
            AND c.relkind IN ('r', 'p')
            AND (c.relname ~ '^ffx?_' OR c.relname = '_sqlx_migrations')
            AND obj_description(c.oid, 'pg_class') IS NOT NULL
        UNION ALL
        SELECT format('COMMENT ON COLUMN %I.%I IS NULL', c.relname, a.attname)
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE
            c.relnamespace = quote_ident(current_schema())::regnamespace
            AND c.relkind IN ('r', 'p')
            AND (c.relname ~ '^ffx?_' OR c.relname = '_sqlx_migrations')
            AND a.attnum > 0
            AND col_description(c.oid, a.attnum) IS NOT NULL
        UNION ALL
        SELECT format('COMMENT ON TRIGGER %I ON %I IS NULL', t.tgname, c.relname)
        FROM pg_trigger AS t
        JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE
            c.relnamespace = quote_ident(current_schema())::regnamespace
            AND t.tgname ~ '^ffx?_'
            AND obj_description(t.oid, 'pg_trigger') IS NOT NULL
        UNION ALL
        SELECT format('COMMENT ON FUNCTION %I(%s) IS NULL', p.proname, pg_get_function_identity_arguments(p.oid))
        FROM pg_proc AS p
        WHERE
            p.pronamespace = quote_ident(current_schema())::regnamespace
            AND p.proname ~ '^ffx?_'
            AND obj_description(p.oid, 'pg_proc') IS NOT NULL
    LOOP
        EXECUTE statement;
    END LOOP;
END;
$$;
