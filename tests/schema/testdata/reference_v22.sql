-- A database as FlowFabric 0.15 makes it (version 22), with four children in place of 256 per
-- partitioned table. Without the words PARTITION BY HASH (partition_key) it is the same database on
-- ordinary tables.

CREATE TABLE ff_exec_core (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    flow_id uuid,
    lane_id text NOT NULL,
    required_capabilities text[] NOT NULL DEFAULT '{}',
    attempt_index integer NOT NULL DEFAULT 0,
    lifecycle_phase text NOT NULL,
    ownership_state text NOT NULL,
    eligibility_state text NOT NULL,
    public_state text NOT NULL,
    attempt_state text NOT NULL,
    blocking_reason text,
    cancellation_reason text,
    cancelled_by text,
    priority integer NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    terminal_at_ms bigint,
    deadline_at_ms bigint,
    payload bytea,
    result bytea,
    policy jsonb,
    raw_fields jsonb NOT NULL DEFAULT '{}',
    started_at_ms bigint,
    lease_reclaim_count integer NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, execution_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_exec_core_flow_idx ON ff_exec_core (partition_key, flow_id)
WHERE flow_id IS NOT NULL;

CREATE TABLE ff_attempt (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    worker_id text,
    worker_instance_id text,
    lease_epoch bigint NOT NULL DEFAULT 0,
    lease_expires_at_ms bigint,
    started_at_ms bigint,
    terminal_at_ms bigint,
    outcome text,
    usage jsonb,
    policy jsonb,
    raw_fields jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (partition_key, execution_id, attempt_index)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_claim_grant (
    partition_key smallint NOT NULL,
    grant_id bytea NOT NULL,
    execution_id uuid NOT NULL,
    kind text NOT NULL,
    worker_id text NOT NULL,
    worker_instance_id text NOT NULL,
    lane_id text,
    capability_hash text,
    worker_capabilities jsonb NOT NULL DEFAULT '[]',
    route_snapshot_json text,
    admission_summary text,
    grant_ttl_ms bigint NOT NULL,
    issued_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, grant_id),
    CONSTRAINT ff_claim_grant_kind_check CHECK (kind IN ('claim', 'reclaim'))
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_claim_grant_execution_idx ON ff_claim_grant (partition_key, execution_id);

CREATE INDEX ff_claim_grant_expiry_idx ON ff_claim_grant (expires_at_ms);

CREATE TABLE ff_lane_registry (
    lane_id text PRIMARY KEY,
    registered_at_ms bigint NOT NULL,
    registered_by text NOT NULL
);

CREATE TABLE ff_flow_core (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    graph_revision bigint NOT NULL DEFAULT 0,
    public_flow_state text NOT NULL,
    created_at_ms bigint NOT NULL,
    terminal_at_ms bigint,
    raw_fields jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (partition_key, flow_id)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_flow_summary (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    total_members bigint NOT NULL DEFAULT 0,
    sampled_members integer NOT NULL DEFAULT 0,
    members_completed integer NOT NULL DEFAULT 0,
    members_failed integer NOT NULL DEFAULT 0,
    members_cancelled integer NOT NULL DEFAULT 0,
    members_expired integer NOT NULL DEFAULT 0,
    members_skipped integer NOT NULL DEFAULT 0,
    members_active integer NOT NULL DEFAULT 0,
    members_suspended integer NOT NULL DEFAULT 0,
    members_waiting integer NOT NULL DEFAULT 0,
    members_delayed integer NOT NULL DEFAULT 0,
    members_rate_limited integer NOT NULL DEFAULT 0,
    members_waiting_children integer NOT NULL DEFAULT 0,
    public_flow_state text NOT NULL,
    last_summary_update_at bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_edge (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    edge_id uuid NOT NULL,
    upstream_eid uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    policy jsonb NOT NULL,
    policy_version integer NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, flow_id, edge_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_edge_downstream_idx ON ff_edge (partition_key, flow_id, downstream_eid)
INCLUDE (upstream_eid, policy_version);

CREATE INDEX ff_edge_upstream_idx ON ff_edge (partition_key, flow_id, upstream_eid);

CREATE TABLE ff_edge_group (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    policy jsonb NOT NULL,
    k_target integer NOT NULL DEFAULT 0,
    success_count integer NOT NULL DEFAULT 0,
    fail_count integer NOT NULL DEFAULT 0,
    skip_count integer NOT NULL DEFAULT 0,
    running_count integer NOT NULL DEFAULT 0,
    cancel_siblings_pending_flag boolean NOT NULL DEFAULT false,
    cancel_siblings_pending_members text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (partition_key, flow_id, downstream_eid)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_pending_cancel_groups (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id, downstream_eid)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_pending_cancel_groups_enqueued_idx ON ff_pending_cancel_groups (partition_key, enqueued_at_ms);

CREATE TABLE ff_cancel_dispatch_outbox (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    target_exec_id uuid NOT NULL,
    reason text NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id, downstream_eid, target_exec_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_cancel_dispatch_outbox_enqueued_idx ON ff_cancel_dispatch_outbox (partition_key, enqueued_at_ms);

CREATE TABLE ff_cancel_backlog (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    requested_at_ms bigint NOT NULL,
    requester text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    grace_until_ms bigint,
    cancellation_policy text NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    PRIMARY KEY (partition_key, flow_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_cancel_backlog_grace_idx ON ff_cancel_backlog (partition_key, grace_until_ms)
WHERE grace_until_ms IS NOT NULL;

CREATE TABLE ff_cancel_backlog_member (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    execution_id text NOT NULL,
    PRIMARY KEY (partition_key, flow_id, execution_id)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_suspension_current (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    suspension_id uuid NOT NULL,
    suspended_at_ms bigint NOT NULL,
    timeout_at_ms bigint,
    reason_code text,
    condition jsonb NOT NULL,
    satisfied_set jsonb NOT NULL DEFAULT '[]',
    member_map jsonb NOT NULL DEFAULT '{}',
    timeout_behavior text,
    PRIMARY KEY (partition_key, execution_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_suspension_current_suspended_at_idx ON ff_suspension_current (partition_key, suspended_at_ms);

CREATE INDEX ff_suspension_current_timeout_idx ON ff_suspension_current (partition_key, timeout_at_ms)
WHERE timeout_at_ms IS NOT NULL;

CREATE TABLE ff_waitpoint_pending (
    partition_key smallint NOT NULL,
    waitpoint_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    token_kid text NOT NULL,
    token text NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    condition jsonb,
    waitpoint_key text NOT NULL DEFAULT '',
    state text NOT NULL DEFAULT 'pending',
    required_signal_names text[] NOT NULL DEFAULT '{}',
    activated_at_ms bigint,
    PRIMARY KEY (partition_key, waitpoint_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_waitpoint_pending_expires_idx ON ff_waitpoint_pending (partition_key, expires_at_ms)
WHERE expires_at_ms IS NOT NULL;

CREATE INDEX ff_waitpoint_pending_exec_idx ON ff_waitpoint_pending (partition_key, execution_id);

CREATE TABLE ff_waitpoint_hmac (
    kid text PRIMARY KEY,
    secret bytea NOT NULL,
    rotated_at_ms bigint NOT NULL,
    active boolean NOT NULL DEFAULT true
);

CREATE TABLE ff_suspend_dedup (
    partition_key smallint NOT NULL,
    idempotency_key text NOT NULL,
    outcome_json jsonb NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, idempotency_key)
);

CREATE TABLE ff_stream_frame (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    ts_ms bigint NOT NULL,
    seq integer NOT NULL,
    fields jsonb NOT NULL,
    mode text NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index, ts_ms, seq)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_stream_summary (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    document_json jsonb NOT NULL,
    version integer NOT NULL DEFAULT 0,
    patch_kind text,
    last_updated_ms bigint NOT NULL,
    first_applied_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_stream_meta (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    ema_rate_hz double precision NOT NULL DEFAULT 0,
    last_append_ts_ms bigint NOT NULL DEFAULT 0,
    maxlen_applied_last integer NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
) PARTITION BY HASH (partition_key);

CREATE FUNCTION ff_notify_stream_frame() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify(
        'ff_stream_' || NEW.execution_id::text || '_' || NEW.attempt_index::text,
        NEW.ts_ms::text || '-' || NEW.seq::text
    );
    RETURN NEW;
END;
$$;

CREATE TABLE ff_completion_event (
    partition_key smallint NOT NULL,
    event_id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    execution_id uuid NOT NULL,
    flow_id uuid,
    outcome text NOT NULL,
    namespace text,
    instance_tag text,
    occurred_at_ms bigint NOT NULL,
    committed_at_ms bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    dispatched_at_ms bigint,
    PRIMARY KEY (partition_key, event_id)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_lease_event (
    event_id bigserial NOT NULL,
    execution_id text NOT NULL,
    lease_id text,
    event_type text NOT NULL,
    occurred_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    PRIMARY KEY (event_id)
);

CREATE TABLE ff_signal_event (
    event_id bigserial NOT NULL,
    execution_id text NOT NULL,
    signal_id text NOT NULL,
    waitpoint_id text,
    source_identity text,
    delivered_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    PRIMARY KEY (event_id)
);

CREATE INDEX ff_signal_event_namespace_idx ON ff_signal_event (partition_key, namespace)
WHERE namespace IS NOT NULL;

CREATE INDEX ff_signal_event_instance_tag_idx ON ff_signal_event (partition_key, instance_tag)
WHERE instance_tag IS NOT NULL;

CREATE TABLE ff_operator_event (
    event_id bigserial NOT NULL,
    execution_id text NOT NULL,
    event_type text NOT NULL,
    details jsonb,
    occurred_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    PRIMARY KEY (event_id),
    CONSTRAINT ff_operator_event_event_type_check
    CHECK (event_type IN ('priority_changed', 'replayed', 'flow_cancel_requested'))
);

CREATE INDEX ff_operator_event_namespace_idx ON ff_operator_event (partition_key, namespace)
WHERE namespace IS NOT NULL;

CREATE INDEX ff_operator_event_instance_tag_idx ON ff_operator_event (partition_key, instance_tag)
WHERE instance_tag IS NOT NULL;

CREATE FUNCTION ff_notify_completion_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_completion', NEW.event_id::text);
    RETURN NEW;
END;
$$;

CREATE FUNCTION ff_notify_lease_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_lease_event', NEW.event_id::text);
    RETURN NEW;
END;
$$;

CREATE FUNCTION ff_notify_signal_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_signal_event', NEW.event_id::text);
    RETURN NEW;
END;
$$;

CREATE FUNCTION ff_notify_operator_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_operator_event', NEW.event_id::text);
    RETURN NEW;
END;
$$;

CREATE TABLE ff_budget_policy (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    policy_json jsonb NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    scope_type text NOT NULL DEFAULT '',
    scope_id text NOT NULL DEFAULT '',
    enforcement_mode text NOT NULL DEFAULT '',
    breach_count bigint NOT NULL DEFAULT 0,
    soft_breach_count bigint NOT NULL DEFAULT 0,
    last_breach_at_ms bigint,
    last_breach_dim text,
    next_reset_at_ms bigint,
    PRIMARY KEY (partition_key, budget_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_budget_policy_reset_due_idx ON ff_budget_policy (partition_key, next_reset_at_ms)
WHERE next_reset_at_ms IS NOT NULL;

CREATE TABLE ff_budget_usage (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    dimensions_key text NOT NULL,
    current_value bigint NOT NULL DEFAULT 0,
    last_reset_at_ms bigint,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, dimensions_key)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_budget_usage_dedup (
    partition_key smallint NOT NULL,
    dedup_key text NOT NULL,
    outcome_json jsonb NOT NULL,
    applied_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, dedup_key)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_budget_usage_dedup_expires_idx ON ff_budget_usage_dedup (partition_key, expires_at_ms);

CREATE TABLE ff_budget_usage_by_exec (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    execution_id uuid NOT NULL,
    dimensions_key text NOT NULL,
    delta_total bigint NOT NULL DEFAULT 0,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, execution_id, dimensions_key)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_quota_policy (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    requests_per_window_seconds bigint NOT NULL,
    max_requests_per_window bigint NOT NULL,
    active_concurrency_cap bigint NOT NULL,
    active_concurrency bigint NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, quota_policy_id)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_quota_window (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    dimension text NOT NULL DEFAULT '',
    admitted_at_ms bigint NOT NULL,
    execution_id text NOT NULL,
    PRIMARY KEY (partition_key, quota_policy_id, dimension, admitted_at_ms, execution_id)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_quota_admitted (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    execution_id text NOT NULL,
    admitted_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, quota_policy_id, execution_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_quota_admitted_expires_idx ON ff_quota_admitted (partition_key, expires_at_ms);

CREATE TABLE ff_worker_registry (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    worker_instance_id text NOT NULL,
    worker_id text NOT NULL,
    lanes text[] NOT NULL,
    capabilities_csv text NOT NULL,
    last_heartbeat_ms bigint NOT NULL,
    liveness_ttl_ms bigint NOT NULL,
    registered_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, namespace, worker_instance_id)
) PARTITION BY HASH (partition_key);

CREATE INDEX ff_worker_registry_ns_inst_idx ON ff_worker_registry (namespace, worker_instance_id);

CREATE TABLE ff_worker_registry_event (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    worker_instance_id text NOT NULL,
    event_kind text NOT NULL,
    event_at_ms bigint NOT NULL,
    reason text,
    CONSTRAINT ff_worker_registry_event_pkey
    PRIMARY KEY (partition_key, namespace, worker_instance_id, event_at_ms, event_kind)
) PARTITION BY HASH (partition_key);

CREATE TABLE ff_partition_config (
    singleton_lock boolean NOT NULL DEFAULT true PRIMARY KEY,
    num_flow_partitions integer NOT NULL,
    num_budget_partitions integer NOT NULL,
    num_quota_partitions integer NOT NULL,
    ff_version text NOT NULL,
    CONSTRAINT ff_partition_config_singleton_lock_check CHECK (singleton_lock)
);

INSERT INTO ff_partition_config
    (singleton_lock, num_flow_partitions, num_budget_partitions, num_quota_partitions, ff_version)
VALUES
    (true, 256, 256, 256, '0.7.0');

CREATE TABLE ff_migration_annotation (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at_ms bigint NOT NULL,
    backward_compatible boolean NOT NULL
);

INSERT INTO ff_migration_annotation (version, name, applied_at_ms, backward_compatible)
SELECT
    annotation.version,
    annotation.name,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    annotation.backward_compatible
FROM (VALUES
    (1, '0001_initial', false),
    (2, '0002_budget', true),
    (3, '0003_dispatch_outbox', true),
    (4, '0004_suspend_signal', true),
    (5, '0005_timeout_scanners', true),
    (6, '0006_lease_event_outbox', true),
    (7, '0007_signal_event_outbox', true),
    (8, '0008_lease_event_instance_tag', true),
    (9, '0009_signal_event_instance_tag', true),
    (10, '0010_operator_event_outbox', true),
    (11, '0011_waitpoint_pending_extensions', true),
    (12, '0012_quota_policy', true),
    (13, '0013_budget_policy_extensions', true),
    (14, '0014_cancel_backlog', true),
    (16, '0016_started_at_ms', true),
    (17, '0017_claim_grant_table', true),
    (19, '0019_flow_summary', true),
    (20, '0020_budget_usage_by_exec', true)
) AS annotation (version, name, backward_compatible);

CREATE TABLE _sqlx_migrations (
    version bigint PRIMARY KEY,
    description text NOT NULL,
    installed_on timestamptz NOT NULL DEFAULT now(),
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);

INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES
    (1, 'initial', true, '\x9ff7e96a98ffd0cfa2f3eb32e0f9482ad1905dc78cdc52bdb87e3d68794771a7f2e06a8294449ddd1b7f516beddf1b40', 1000000),
    (2, 'budget', true, '\xa81355439c91e16dd62e6f29169507b76db85605f688b815e3134d1956171b97b9581794f8af0f0fdb6780d3b2eb3ebd', 1000000),
    (3, 'dispatch outbox', true, '\x9efca66d6be816411a9413c3aae787c5a154059c63866c1c03d6ceb2389b85b34328314258eb8c715c6ed9c91b5e4fa7', 1000000),
    (4, 'suspend signal', true, '\x53be2f02f84d9de6969732cfe8fa3c50dc3d828ef50d0165bf88327594f27ec652f2c60cc97bd81212f93484751d03f9', 1000000),
    (5, 'timeout scanners', true, '\x964a72a0747971ebd580dd4b6bcf1999a972f59a14cc78d0ef47f7e4782829c0b3db5da94e803f086ccefab6b550c040', 1000000),
    (6, 'lease event outbox', true, '\xcc165744de11e412fe744823c98a9d18b5f697d6f64a95abc5971f060fa1a99bfdac126ddd9aff64534b04c3c9974490', 1000000),
    (7, 'signal event outbox', true, '\xc2f317da61d8b95b32f77857dc9524e8512bf8ed6051a03102dffc72b264a85b2df162d2e0235b34e0413f758f47a920', 1000000),
    (8, 'lease event instance tag', true, '\x7238cd72a0fb711dc1ed014988955bcc5e87ca79979c42cfc33dac989eefcbc65d2f49099f942f4b67e02a870004cc19', 1000000),
    (9, 'signal event instance tag', true, '\x011f4e616d5d1b52cfe78bfca35efc1464ca385d41443dc8195138aaadb751eb261aff29886fa1c370967164d2a34dcc', 1000000),
    (10, 'operator event outbox', true, '\x4f13556be64c5b25ab533738226309624da50d06f877af407b111b6d7021405abd340c8f54d5e34af33a0b54fdc5e82e', 1000000),
    (11, 'waitpoint pending extensions', true, '\xdcc06ee568795ad9d3f359457f9f0c4da9f4930f011a8e28285b4f20b70b927dd46b3eb798869d7ede96ff6a8809ab7c', 1000000),
    (12, 'quota policy', true, '\xbc113a49b73b0bb5b1bfc64078fe8542058e73b8ad76e45f16936354f3d12460d83aca4518511354e6e0829dcd14ce56', 1000000),
    (13, 'budget policy extensions', true, '\x7c843e7d483dccecdcf783272e426bd3a0b8225d38d9a2384cd60e8f7e4ffb1fe36ceff0eb4a7dc1744bf89c1050df36', 1000000),
    (14, 'cancel backlog', true, '\xd6c600cb1d2faf649bc2caa564169ebe73156797ab139a80ef2b9d3d720f21b929aef7832ad490d0dd979881eec3605b', 1000000),
    (16, 'started at ms', true, '\x2a69a24097418ea8e0d8296bb2a0e4f37c95bbd7df6f41d1eb3c61afcd0a0078e56af5bd1a6f9e4647c1831a9a9c15ab', 1000000),
    (17, 'claim grant table', true, '\xb6d267f539120b8d454d528c4dbb8e54c44ffafadf25342dec3f176d30c8fa22a28c61b8c13fbabbabd56fde44f3f2fd', 1000000),
    (18, 'completion event lookup idx', true, '\x8e46ca6420854d0381583e026e3824711efc4d09ddb7a6eb79120346a84aaf9ea7d695c3989d02a37a47d496a007156a', 1000000),
    (19, 'flow summary', true, '\xc7558a668b756efec6453e66f1f9e28be58d01928a58963841a8d9773c3b65ccafc820402bdf4dc9628f0891c6a301f6', 1000000),
    (20, 'budget usage by exec', true, '\x818839cadb8c9fee615964951b6a788dbd8cfb44d4e6a6f6cb11ddcb471612e5dc45f7403f8d9146a8e3d067df316b7e', 1000000),
    (21, 'worker registry', true, '\x8ef0d6feb183a6bd15ebc6f1dfa3d9a47004a84544daf56f675e28ef9ee365025d8e24333a77c82eb80255805a91b825', 1000000),
    (22, 'worker registry event pk', true, '\xfe57077fab6ff1cc0a114b47b57383b021273829376947e2028c20f29a10343d47340a809d042ef044e711d241b59005', 1000000);

-- The reference's indexes that this library leaves out of its own databases.
CREATE INDEX ff_exec_core_lane_phase_idx ON ff_exec_core (partition_key, lane_id, lifecycle_phase);
CREATE INDEX ff_exec_core_caps_gin_idx ON ff_exec_core USING gin (required_capabilities);
CREATE INDEX ff_exec_core_deadline_idx ON ff_exec_core (partition_key, deadline_at_ms)
WHERE deadline_at_ms IS NOT NULL;
CREATE INDEX ff_attempt_lease_expiry_idx ON ff_attempt (partition_key, lease_expires_at_ms)
WHERE lease_expires_at_ms IS NOT NULL;
CREATE INDEX ff_attempt_worker_idx ON ff_attempt (partition_key, worker_id)
WHERE worker_id IS NOT NULL;
CREATE INDEX ff_stream_frame_ts_seq_idx ON ff_stream_frame (partition_key, execution_id, attempt_index, ts_ms, seq);
CREATE INDEX ff_completion_event_event_id_idx ON ff_completion_event (event_id);
CREATE INDEX ff_completion_event_pending_dispatch_idx ON ff_completion_event (partition_key, committed_at_ms)
WHERE dispatched_at_ms IS NULL;
CREATE INDEX ff_completion_event_lookup_idx ON ff_completion_event (partition_key, execution_id, occurred_at_ms);
CREATE INDEX ff_lease_event_partition_key_idx ON ff_lease_event (partition_key, event_id);
CREATE INDEX ff_lease_event_namespace_idx ON ff_lease_event (partition_key, namespace)
WHERE namespace IS NOT NULL;
CREATE INDEX ff_lease_event_instance_tag_idx ON ff_lease_event (partition_key, instance_tag)
WHERE instance_tag IS NOT NULL;
CREATE INDEX ff_signal_event_partition_key_idx ON ff_signal_event (partition_key, event_id);
CREATE INDEX ff_operator_event_partition_key_idx ON ff_operator_event (partition_key, event_id);
CREATE INDEX ff_budget_usage_by_exec_release_idx ON ff_budget_usage_by_exec (partition_key, budget_id, execution_id);

-- One notification per row.
CREATE TRIGGER ff_completion_event_notify_trg
AFTER INSERT ON ff_completion_event
FOR EACH ROW EXECUTE FUNCTION ff_notify_completion_event();
CREATE TRIGGER ff_lease_event_notify_trg
AFTER INSERT ON ff_lease_event
FOR EACH ROW EXECUTE FUNCTION ff_notify_lease_event();
CREATE TRIGGER ff_signal_event_notify_trg
AFTER INSERT ON ff_signal_event
FOR EACH ROW EXECUTE FUNCTION ff_notify_signal_event();
CREATE TRIGGER ff_operator_event_notify_trg
AFTER INSERT ON ff_operator_event
FOR EACH ROW EXECUTE FUNCTION ff_notify_operator_event();
CREATE TRIGGER ff_stream_frame_notify_trg
AFTER INSERT ON ff_stream_frame
FOR EACH ROW EXECUTE FUNCTION ff_notify_stream_frame();

-- The reference makes 256 children of each partitioned table; four have the same effect here.
DO $$
DECLARE
    parent name;
BEGIN
    FOR parent IN
        SELECT relname
        FROM pg_class
        WHERE relkind = 'p' AND relnamespace = current_schema()::regnamespace
    LOOP
        FOR i IN 0..3 LOOP
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES WITH (MODULUS 4, REMAINDER %s)',
                parent || '_p' || i, parent, i
            );
        END LOOP;
    END LOOP;
END;
$$;
