-- Comments on FlowFabric's tables of suspensions, streams and outboxes, and on its functions.
--
-- usable-from: 20261125000001

-- migrate:up

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
    'Array of the ids of the signals in member_map that satisfied it; FlowFabric leaves it empty.';
COMMENT ON COLUMN ff_suspension_current.member_map IS
    'Signals delivered that no earlier wait has used: an object by waitpoint key, each an array in order of delivery of {signal_id, signal_name, signal_category, source_type, source_identity, correlation_id, accepted_at (ms), payload_hex}; with ffx_place, their order among all of them. FlowFabric also stores the key __timeout__ and, for an expired waitpoint, an object instead of the array.';
COMMENT ON COLUMN ff_suspension_current.timeout_behavior IS
    'fail, cancel, expire, auto_resume_with_timeout_signal or escalate; NULL or unknown: fail.';

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
    'durable (kept as long as the execution, unless the engine keeps only the newest), summary (a patch of the document; the newest 64 are kept) or best_effort (trimmed after a while).';
COMMENT ON COLUMN ff_stream_frame.created_at_ms IS
    'Milliseconds since the Unix epoch: equal to ts_ms.';

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
    'How many frames of mode best_effort the last append wanted to keep.';

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

COMMENT ON TABLE ff_operator_event IS
    'Outbox of what operators did, inserted by the transaction that did it.';
COMMENT ON COLUMN ff_operator_event.event_id IS
    'Position in this outbox, in order of allocation, not of commit. One sequence serves all partitions; a cursor of another outbox means nothing here.';
COMMENT ON COLUMN ff_operator_event.execution_id IS
    'The execution, a bare uuid as text; of flow_cancel_requested the flow; NULL: an action that is not about one execution.';
COMMENT ON COLUMN ff_operator_event.event_type IS
    'priority_changed, replayed, flow_cancel_requested or action: one recorded by a console, with the name of the person.';
COMMENT ON COLUMN ff_operator_event.details IS
    'Object. priority_changed: old_priority, new_priority. replayed: branch (normal or skipped_flow_member), groups_reset. flow_cancel_requested: flow_id, cancellation_policy, reason, member_count. action: by, action, object, detail; the last two are left out when empty.';
COMMENT ON COLUMN ff_operator_event.occurred_at_ms IS
    'Milliseconds since the Unix epoch: when it happened.';
COMMENT ON COLUMN ff_operator_event.partition_key IS
    'Logical shard of the execution or flow; 0 without one. integer here, where other tables have smallint: FlowFabric decodes the exact type.';
COMMENT ON COLUMN ff_operator_event.namespace IS
    'Namespace of the execution, its first 1024 bytes; NULL when it has none, or the event has no execution. Readers filter by it.';
COMMENT ON COLUMN ff_operator_event.instance_tag IS
    'Value of the execution''s tag cairn.instance_id, its first 1024 bytes; NULL when it has none, or the event has no execution. Readers filter by it.';

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

-- migrate:down

DO $$
DECLARE
    tables CONSTANT text[] := ARRAY[
            'ff_suspension_current', 'ff_waitpoint_pending', 'ff_waitpoint_hmac', 'ff_suspend_dedup',
            'ff_stream_frame', 'ff_stream_summary', 'ff_stream_meta', 'ff_completion_event', 'ff_lease_event',
            'ff_signal_event', 'ff_operator_event'
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

COMMENT ON FUNCTION ff_notify_completion_event() IS NULL;
COMMENT ON FUNCTION ff_notify_lease_event() IS NULL;
COMMENT ON FUNCTION ff_notify_operator_event() IS NULL;
COMMENT ON FUNCTION ff_notify_signal_event() IS NULL;
COMMENT ON FUNCTION ff_notify_stream_frame() IS NULL;
