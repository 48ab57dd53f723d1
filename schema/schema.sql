
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

CREATE FUNCTION ff_notify_operator_event() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('ff_operator_event', NEW.event_id::text);
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

CREATE FUNCTION ffx_flow_key(flow_id uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT hashtextextended(flow_id::text, 8031);
$$;

CREATE FUNCTION ffx_notify_channel() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], '');
    RETURN NULL;
END;
$$;

CREATE FUNCTION ffx_notify_stream() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('ff_stream_' || stream.execution_id::text || '_' || stream.attempt_index::text, '')
    FROM (SELECT DISTINCT execution_id, attempt_index FROM inserted_frames) AS stream;
    RETURN NULL;
END;
$$;

CREATE FUNCTION ffx_now_ms(now_ms bigint) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT coalesce(now_ms, (extract(epoch FROM statement_timestamp()) * 1000)::bigint);
$$;

CREATE FUNCTION ffx_record_floor() RETURNS trigger
    LANGUAGE plpgsql
    AS $_$
BEGIN
    EXECUTE format(
        $upsert$
            INSERT INTO %1$I.ffx_outbox_floor AS stored (outbox, floor_event_id, updated_at_ms)
            SELECT
                $1,
                deleted.event_id,
                %1$I.ffx_now_ms(NULL)
            FROM (SELECT max(event_id) AS event_id FROM deleted_events) AS deleted
            WHERE deleted.event_id > coalesce(
                (SELECT floor_event_id FROM %1$I.ffx_outbox_floor WHERE outbox = $1),
                0
            )
            ON CONFLICT (outbox) DO UPDATE SET
                floor_event_id = excluded.floor_event_id,
                updated_at_ms = excluded.updated_at_ms
            WHERE stored.floor_event_id < excluded.floor_event_id
        $upsert$,
        TG_TABLE_SCHEMA
    )
    USING TG_ARGV[0];
    RETURN NULL;
END;
$_$;

CREATE FUNCTION ffx_record_truncate() RETURNS trigger
    LANGUAGE plpgsql
    AS $_$
DECLARE
    last_event_id bigint;
BEGIN
    EXECUTE format(
        'SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM %s',
        pg_get_serial_sequence(format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME), 'event_id')
    )
    INTO last_event_id;
    EXECUTE format(
        $upsert$
            INSERT INTO %1$I.ffx_outbox_floor AS stored (outbox, floor_event_id, updated_at_ms)
            VALUES ($1, $2, %1$I.ffx_now_ms(NULL))
            ON CONFLICT (outbox) DO UPDATE SET
                floor_event_id = excluded.floor_event_id,
                updated_at_ms = excluded.updated_at_ms
            WHERE stored.floor_event_id < excluded.floor_event_id
        $upsert$,
        TG_TABLE_SCHEMA
    )
    USING TG_ARGV[0], last_event_id;
    RETURN NULL;
END;
$_$;

CREATE TABLE _sqlx_migrations (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);

CREATE TABLE ff_attempt (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    worker_id text,
    worker_instance_id text,
    lease_epoch bigint DEFAULT 0 NOT NULL,
    lease_expires_at_ms bigint,
    started_at_ms bigint,
    terminal_at_ms bigint,
    outcome text,
    usage jsonb,
    policy jsonb,
    raw_fields jsonb DEFAULT '{}'::jsonb NOT NULL,
    ffx_attempt_type text,
    ffx_attempt_id uuid,
    ffx_lease_id uuid,
    ffx_timeout_at_ms bigint,
    ffx_delay_until_ms bigint,
    ffx_stream_ts_ms bigint,
    ffx_stream_seq integer,
    ffx_stream_frames bigint
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.02', autovacuum_analyze_threshold='1000');

CREATE TABLE ff_budget_policy (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    policy_json jsonb NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    scope_type text DEFAULT ''::text NOT NULL,
    scope_id text DEFAULT ''::text NOT NULL,
    enforcement_mode text DEFAULT ''::text NOT NULL,
    breach_count bigint DEFAULT 0 NOT NULL,
    soft_breach_count bigint DEFAULT 0 NOT NULL,
    last_breach_at_ms bigint,
    last_breach_dim text,
    next_reset_at_ms bigint
)
WITH (fillfactor='50');

CREATE TABLE ff_budget_usage (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    dimensions_key text NOT NULL,
    current_value bigint DEFAULT 0 NOT NULL,
    last_reset_at_ms bigint,
    updated_at_ms bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE ff_budget_usage_by_exec (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    execution_id uuid NOT NULL,
    dimensions_key text NOT NULL,
    delta_total bigint DEFAULT 0 NOT NULL,
    updated_at_ms bigint NOT NULL
);

CREATE TABLE ff_budget_usage_dedup (
    partition_key smallint NOT NULL,
    dedup_key text NOT NULL,
    outcome_json jsonb NOT NULL,
    applied_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL
);

CREATE TABLE ff_cancel_backlog (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    requested_at_ms bigint NOT NULL,
    requester text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    grace_until_ms bigint,
    cancellation_policy text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL
);

CREATE TABLE ff_cancel_backlog_member (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    execution_id text NOT NULL
);

CREATE TABLE ff_cancel_dispatch_outbox (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    target_exec_id uuid NOT NULL,
    reason text NOT NULL,
    enqueued_at_ms bigint NOT NULL
);

CREATE TABLE ff_claim_grant (
    partition_key smallint NOT NULL,
    grant_id bytea NOT NULL,
    execution_id uuid NOT NULL,
    kind text NOT NULL,
    worker_id text NOT NULL,
    worker_instance_id text NOT NULL,
    lane_id text,
    capability_hash text,
    worker_capabilities jsonb DEFAULT '[]'::jsonb NOT NULL,
    route_snapshot_json text,
    admission_summary text,
    grant_ttl_ms bigint NOT NULL,
    issued_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    CONSTRAINT ff_claim_grant_kind_check CHECK ((kind = ANY (ARRAY['claim'::text, 'reclaim'::text])))
);

CREATE TABLE ff_completion_event (
    partition_key smallint NOT NULL,
    event_id bigint NOT NULL,
    execution_id uuid NOT NULL,
    flow_id uuid,
    outcome text NOT NULL,
    namespace text,
    instance_tag text,
    occurred_at_ms bigint NOT NULL,
    committed_at_ms bigint DEFAULT ((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint NOT NULL,
    dispatched_at_ms bigint
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000');

ALTER TABLE ff_completion_event ALTER COLUMN event_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ff_completion_event_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE ff_edge (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    edge_id uuid NOT NULL,
    upstream_eid uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    policy jsonb NOT NULL,
    policy_version integer DEFAULT 0 NOT NULL
);

CREATE TABLE ff_edge_group (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    policy jsonb NOT NULL,
    k_target integer DEFAULT 0 NOT NULL,
    success_count integer DEFAULT 0 NOT NULL,
    fail_count integer DEFAULT 0 NOT NULL,
    skip_count integer DEFAULT 0 NOT NULL,
    running_count integer DEFAULT 0 NOT NULL,
    cancel_siblings_pending_flag boolean DEFAULT false NOT NULL,
    cancel_siblings_pending_members text[] DEFAULT '{}'::text[] NOT NULL
)
WITH (fillfactor='80');

CREATE TABLE ff_exec_core (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    flow_id uuid,
    lane_id text NOT NULL,
    required_capabilities text[] DEFAULT '{}'::text[] NOT NULL,
    attempt_index integer DEFAULT 0 NOT NULL,
    lifecycle_phase text NOT NULL,
    ownership_state text NOT NULL,
    eligibility_state text NOT NULL,
    public_state text NOT NULL,
    attempt_state text NOT NULL,
    blocking_reason text,
    cancellation_reason text,
    cancelled_by text,
    priority integer DEFAULT 0 NOT NULL,
    created_at_ms bigint NOT NULL,
    terminal_at_ms bigint,
    deadline_at_ms bigint,
    payload bytea,
    result bytea,
    policy jsonb,
    raw_fields jsonb DEFAULT '{}'::jsonb NOT NULL,
    started_at_ms bigint,
    lease_reclaim_count integer DEFAULT 0 NOT NULL,
    ffx_last_mutation_at_ms bigint,
    ffx_attempt_count integer,
    ffx_retry_count integer,
    ffx_lease_epoch bigint,
    ffx_delay_until_ms bigint,
    ffx_execution_deadline_ms bigint,
    ffx_namespace text GENERATED ALWAYS AS ((raw_fields ->> 'namespace'::text)) STORED,
    ffx_instance_tag text GENERATED ALWAYS AS (((raw_fields -> 'tags'::text) ->> 'cairn.instance_id'::text)) STORED,
    ffx_budget_ids uuid[],
    ffx_quota_policy_id uuid,
    ffx_quota_partition smallint,
    ffx_gate_id uuid,
    ffx_admitted boolean
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.02', autovacuum_analyze_threshold='1000');

CREATE TABLE ff_flow_core (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    graph_revision bigint DEFAULT 0 NOT NULL,
    public_flow_state text NOT NULL,
    created_at_ms bigint NOT NULL,
    terminal_at_ms bigint,
    raw_fields jsonb DEFAULT '{}'::jsonb NOT NULL
);

CREATE TABLE ff_flow_summary (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    total_members bigint DEFAULT 0 NOT NULL,
    sampled_members integer DEFAULT 0 NOT NULL,
    members_completed integer DEFAULT 0 NOT NULL,
    members_failed integer DEFAULT 0 NOT NULL,
    members_cancelled integer DEFAULT 0 NOT NULL,
    members_expired integer DEFAULT 0 NOT NULL,
    members_skipped integer DEFAULT 0 NOT NULL,
    members_active integer DEFAULT 0 NOT NULL,
    members_suspended integer DEFAULT 0 NOT NULL,
    members_waiting integer DEFAULT 0 NOT NULL,
    members_delayed integer DEFAULT 0 NOT NULL,
    members_rate_limited integer DEFAULT 0 NOT NULL,
    members_waiting_children integer DEFAULT 0 NOT NULL,
    public_flow_state text NOT NULL,
    last_summary_update_at bigint NOT NULL
);

CREATE TABLE ff_lane_registry (
    lane_id text NOT NULL,
    registered_at_ms bigint NOT NULL,
    registered_by text NOT NULL
);

CREATE TABLE ff_lease_event (
    event_id bigint NOT NULL,
    execution_id text NOT NULL,
    lease_id text,
    event_type text NOT NULL,
    occurred_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    ffx_worker_instance_id text,
    ffx_revoked_by text
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000');

CREATE SEQUENCE ff_lease_event_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE ff_lease_event_event_id_seq OWNED BY ff_lease_event.event_id;

CREATE TABLE ff_migration_annotation (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at_ms bigint NOT NULL,
    backward_compatible boolean NOT NULL
);

CREATE TABLE ff_operator_event (
    event_id bigint NOT NULL,
    execution_id text NOT NULL,
    event_type text NOT NULL,
    details jsonb,
    occurred_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    CONSTRAINT ff_operator_event_event_type_check CHECK ((event_type = ANY (ARRAY['priority_changed'::text, 'replayed'::text, 'flow_cancel_requested'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000');

CREATE SEQUENCE ff_operator_event_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE ff_operator_event_event_id_seq OWNED BY ff_operator_event.event_id;

CREATE TABLE ff_partition_config (
    singleton_lock boolean DEFAULT true NOT NULL,
    num_flow_partitions integer NOT NULL,
    num_budget_partitions integer NOT NULL,
    num_quota_partitions integer NOT NULL,
    ff_version text NOT NULL,
    CONSTRAINT ff_partition_config_singleton_lock_check CHECK (singleton_lock)
);

CREATE TABLE ff_pending_cancel_groups (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    enqueued_at_ms bigint NOT NULL
);

CREATE TABLE ff_quota_admitted (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    execution_id text NOT NULL,
    admitted_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL
);

CREATE TABLE ff_quota_policy (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    requests_per_window_seconds bigint NOT NULL,
    max_requests_per_window bigint NOT NULL,
    active_concurrency_cap bigint NOT NULL,
    active_concurrency bigint DEFAULT 0 NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE ff_quota_window (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    dimension text DEFAULT ''::text NOT NULL,
    admitted_at_ms bigint NOT NULL,
    execution_id text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500');

CREATE TABLE ff_signal_event (
    event_id bigint NOT NULL,
    execution_id text NOT NULL,
    signal_id text NOT NULL,
    waitpoint_id text,
    source_identity text,
    delivered_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    ffx_effect text
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000');

CREATE SEQUENCE ff_signal_event_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE ff_signal_event_event_id_seq OWNED BY ff_signal_event.event_id;

CREATE TABLE ff_stream_frame (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    ts_ms bigint NOT NULL,
    seq integer NOT NULL,
    fields jsonb NOT NULL,
    mode text NOT NULL,
    created_at_ms bigint NOT NULL
);

CREATE TABLE ff_stream_meta (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    ema_rate_hz double precision DEFAULT 0 NOT NULL,
    last_append_ts_ms bigint DEFAULT 0 NOT NULL,
    maxlen_applied_last integer DEFAULT 0 NOT NULL
);

CREATE TABLE ff_stream_summary (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    document_json jsonb NOT NULL,
    version integer DEFAULT 0 NOT NULL,
    patch_kind text,
    last_updated_ms bigint NOT NULL,
    first_applied_ms bigint NOT NULL
);

CREATE TABLE ff_suspend_dedup (
    partition_key smallint NOT NULL,
    idempotency_key text NOT NULL,
    outcome_json jsonb NOT NULL,
    created_at_ms bigint NOT NULL
);

CREATE TABLE ff_suspension_current (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    suspension_id uuid NOT NULL,
    suspended_at_ms bigint NOT NULL,
    timeout_at_ms bigint,
    reason_code text,
    condition jsonb NOT NULL,
    satisfied_set jsonb DEFAULT '[]'::jsonb NOT NULL,
    member_map jsonb DEFAULT '{}'::jsonb NOT NULL,
    timeout_behavior text,
    ffx_primary_waitpoint_id uuid,
    ffx_resume_delay_ms bigint,
    ffx_requested_by text,
    ffx_continuation_pointer text
);

CREATE TABLE ff_waitpoint_hmac (
    kid text NOT NULL,
    secret bytea NOT NULL,
    rotated_at_ms bigint NOT NULL,
    active boolean DEFAULT true NOT NULL,
    ffx_verify_until_ms bigint
);

CREATE TABLE ff_waitpoint_pending (
    partition_key smallint NOT NULL,
    waitpoint_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    token_kid text NOT NULL,
    token text NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    condition jsonb,
    waitpoint_key text DEFAULT ''::text NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    required_signal_names text[] DEFAULT '{}'::text[] NOT NULL,
    activated_at_ms bigint
);

CREATE TABLE ff_worker_registry (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    worker_instance_id text NOT NULL,
    worker_id text NOT NULL,
    lanes text[] NOT NULL,
    capabilities_csv text NOT NULL,
    last_heartbeat_ms bigint NOT NULL,
    liveness_ttl_ms bigint NOT NULL,
    registered_at_ms bigint NOT NULL
);

CREATE TABLE ff_worker_registry_event (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    worker_instance_id text NOT NULL,
    event_kind text NOT NULL,
    event_at_ms bigint NOT NULL,
    reason text
);

CREATE TABLE ffx_create_dedup (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    idempotency_key text NOT NULL,
    execution_id uuid NOT NULL,
    expires_at_ms bigint NOT NULL
);

CREATE TABLE ffx_outbox_consumer (
    outbox text NOT NULL,
    consumer text NOT NULL,
    event_id bigint NOT NULL,
    updated_at_ms bigint NOT NULL
);

CREATE TABLE ffx_outbox_floor (
    outbox text NOT NULL,
    floor_event_id bigint NOT NULL,
    updated_at_ms bigint NOT NULL
);

CREATE TABLE ffx_schema_migrations (
    version character varying NOT NULL
);

ALTER TABLE ONLY ff_lease_event ALTER COLUMN event_id SET DEFAULT nextval('ff_lease_event_event_id_seq'::regclass);

ALTER TABLE ONLY ff_operator_event ALTER COLUMN event_id SET DEFAULT nextval('ff_operator_event_event_id_seq'::regclass);

ALTER TABLE ONLY ff_signal_event ALTER COLUMN event_id SET DEFAULT nextval('ff_signal_event_event_id_seq'::regclass);

ALTER TABLE ONLY _sqlx_migrations
    ADD CONSTRAINT _sqlx_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY ff_attempt
    ADD CONSTRAINT ff_attempt_pkey PRIMARY KEY (partition_key, execution_id, attempt_index);

ALTER TABLE ONLY ff_budget_policy
    ADD CONSTRAINT ff_budget_policy_pkey PRIMARY KEY (partition_key, budget_id);

ALTER TABLE ONLY ff_budget_usage_by_exec
    ADD CONSTRAINT ff_budget_usage_by_exec_pkey PRIMARY KEY (partition_key, budget_id, execution_id, dimensions_key);

ALTER TABLE ONLY ff_budget_usage_dedup
    ADD CONSTRAINT ff_budget_usage_dedup_pkey PRIMARY KEY (partition_key, dedup_key);

ALTER TABLE ONLY ff_budget_usage
    ADD CONSTRAINT ff_budget_usage_pkey PRIMARY KEY (partition_key, budget_id, dimensions_key);

ALTER TABLE ONLY ff_cancel_backlog_member
    ADD CONSTRAINT ff_cancel_backlog_member_pkey PRIMARY KEY (partition_key, flow_id, execution_id);

ALTER TABLE ONLY ff_cancel_backlog
    ADD CONSTRAINT ff_cancel_backlog_pkey PRIMARY KEY (partition_key, flow_id);

ALTER TABLE ONLY ff_cancel_dispatch_outbox
    ADD CONSTRAINT ff_cancel_dispatch_outbox_pkey PRIMARY KEY (partition_key, flow_id, downstream_eid, target_exec_id);

ALTER TABLE ONLY ff_claim_grant
    ADD CONSTRAINT ff_claim_grant_pkey PRIMARY KEY (partition_key, grant_id);

ALTER TABLE ONLY ff_completion_event
    ADD CONSTRAINT ff_completion_event_pkey PRIMARY KEY (event_id, partition_key);

ALTER TABLE ONLY ff_edge_group
    ADD CONSTRAINT ff_edge_group_pkey PRIMARY KEY (partition_key, flow_id, downstream_eid);

ALTER TABLE ONLY ff_edge
    ADD CONSTRAINT ff_edge_pkey PRIMARY KEY (partition_key, flow_id, edge_id);

ALTER TABLE ONLY ff_exec_core
    ADD CONSTRAINT ff_exec_core_pkey PRIMARY KEY (partition_key, execution_id);

ALTER TABLE ONLY ff_flow_core
    ADD CONSTRAINT ff_flow_core_pkey PRIMARY KEY (partition_key, flow_id);

ALTER TABLE ONLY ff_flow_summary
    ADD CONSTRAINT ff_flow_summary_pkey PRIMARY KEY (partition_key, flow_id);

ALTER TABLE ONLY ff_lane_registry
    ADD CONSTRAINT ff_lane_registry_pkey PRIMARY KEY (lane_id);

ALTER TABLE ONLY ff_lease_event
    ADD CONSTRAINT ff_lease_event_pkey PRIMARY KEY (event_id, partition_key);

ALTER TABLE ONLY ff_migration_annotation
    ADD CONSTRAINT ff_migration_annotation_pkey PRIMARY KEY (version);

ALTER TABLE ONLY ff_operator_event
    ADD CONSTRAINT ff_operator_event_pkey PRIMARY KEY (event_id, partition_key);

ALTER TABLE ONLY ff_partition_config
    ADD CONSTRAINT ff_partition_config_pkey PRIMARY KEY (singleton_lock);

ALTER TABLE ONLY ff_pending_cancel_groups
    ADD CONSTRAINT ff_pending_cancel_groups_pkey PRIMARY KEY (partition_key, flow_id, downstream_eid);

ALTER TABLE ONLY ff_quota_admitted
    ADD CONSTRAINT ff_quota_admitted_pkey PRIMARY KEY (partition_key, quota_policy_id, execution_id);

ALTER TABLE ONLY ff_quota_policy
    ADD CONSTRAINT ff_quota_policy_pkey PRIMARY KEY (partition_key, quota_policy_id);

ALTER TABLE ONLY ff_quota_window
    ADD CONSTRAINT ff_quota_window_pkey PRIMARY KEY (partition_key, quota_policy_id, dimension, admitted_at_ms, execution_id);

ALTER TABLE ONLY ff_signal_event
    ADD CONSTRAINT ff_signal_event_pkey PRIMARY KEY (event_id, partition_key);

ALTER TABLE ONLY ff_stream_frame
    ADD CONSTRAINT ff_stream_frame_pkey PRIMARY KEY (partition_key, execution_id, attempt_index, ts_ms, seq);

ALTER TABLE ONLY ff_stream_meta
    ADD CONSTRAINT ff_stream_meta_pkey PRIMARY KEY (partition_key, execution_id, attempt_index);

ALTER TABLE ONLY ff_stream_summary
    ADD CONSTRAINT ff_stream_summary_pkey PRIMARY KEY (partition_key, execution_id, attempt_index);

ALTER TABLE ONLY ff_suspend_dedup
    ADD CONSTRAINT ff_suspend_dedup_pkey PRIMARY KEY (partition_key, idempotency_key);

ALTER TABLE ONLY ff_suspension_current
    ADD CONSTRAINT ff_suspension_current_pkey PRIMARY KEY (partition_key, execution_id);

ALTER TABLE ONLY ff_waitpoint_hmac
    ADD CONSTRAINT ff_waitpoint_hmac_pkey PRIMARY KEY (kid);

ALTER TABLE ONLY ff_waitpoint_pending
    ADD CONSTRAINT ff_waitpoint_pending_pkey PRIMARY KEY (partition_key, waitpoint_id);

ALTER TABLE ONLY ff_worker_registry_event
    ADD CONSTRAINT ff_worker_registry_event_pkey PRIMARY KEY (partition_key, namespace, worker_instance_id, event_at_ms, event_kind);

ALTER TABLE ONLY ff_worker_registry
    ADD CONSTRAINT ff_worker_registry_pkey PRIMARY KEY (partition_key, namespace, worker_instance_id);

ALTER TABLE ONLY ffx_create_dedup
    ADD CONSTRAINT ffx_create_dedup_pkey PRIMARY KEY (partition_key, namespace, idempotency_key);

ALTER TABLE ONLY ffx_outbox_consumer
    ADD CONSTRAINT ffx_outbox_consumer_pkey PRIMARY KEY (outbox, consumer);

ALTER TABLE ONLY ffx_outbox_floor
    ADD CONSTRAINT ffx_outbox_floor_pkey PRIMARY KEY (outbox);

ALTER TABLE ONLY ffx_schema_migrations
    ADD CONSTRAINT ffx_schema_migrations_pkey PRIMARY KEY (version);

CREATE INDEX ff_budget_policy_reset_due_idx ON ff_budget_policy USING btree (partition_key, next_reset_at_ms) WHERE (next_reset_at_ms IS NOT NULL);

CREATE INDEX ff_budget_usage_dedup_expires_idx ON ff_budget_usage_dedup USING btree (partition_key, expires_at_ms);

CREATE INDEX ff_cancel_backlog_grace_idx ON ff_cancel_backlog USING btree (partition_key, grace_until_ms) WHERE (grace_until_ms IS NOT NULL);

CREATE INDEX ff_cancel_dispatch_outbox_enqueued_idx ON ff_cancel_dispatch_outbox USING btree (partition_key, enqueued_at_ms);

CREATE INDEX ff_claim_grant_execution_idx ON ff_claim_grant USING btree (partition_key, execution_id);

CREATE INDEX ff_claim_grant_expiry_idx ON ff_claim_grant USING btree (expires_at_ms);

CREATE INDEX ff_edge_downstream_idx ON ff_edge USING btree (partition_key, flow_id, downstream_eid) INCLUDE (upstream_eid, policy_version);

CREATE INDEX ff_edge_upstream_idx ON ff_edge USING btree (partition_key, flow_id, upstream_eid);

CREATE INDEX ff_exec_core_flow_idx ON ff_exec_core USING btree (partition_key, flow_id) WHERE (flow_id IS NOT NULL);

CREATE INDEX ff_operator_event_instance_tag_idx ON ff_operator_event USING btree (partition_key, instance_tag) WHERE (instance_tag IS NOT NULL);

CREATE INDEX ff_operator_event_namespace_idx ON ff_operator_event USING btree (partition_key, namespace) WHERE (namespace IS NOT NULL);

CREATE INDEX ff_pending_cancel_groups_enqueued_idx ON ff_pending_cancel_groups USING btree (partition_key, enqueued_at_ms);

CREATE INDEX ff_quota_admitted_expires_idx ON ff_quota_admitted USING btree (partition_key, expires_at_ms);

CREATE INDEX ff_signal_event_instance_tag_idx ON ff_signal_event USING btree (partition_key, instance_tag) WHERE (instance_tag IS NOT NULL);

CREATE INDEX ff_signal_event_namespace_idx ON ff_signal_event USING btree (partition_key, namespace) WHERE (namespace IS NOT NULL);

CREATE INDEX ff_suspension_current_suspended_at_idx ON ff_suspension_current USING btree (partition_key, suspended_at_ms);

CREATE INDEX ff_suspension_current_timeout_idx ON ff_suspension_current USING btree (partition_key, timeout_at_ms) WHERE (timeout_at_ms IS NOT NULL);

CREATE INDEX ff_waitpoint_pending_exec_idx ON ff_waitpoint_pending USING btree (partition_key, execution_id);

CREATE INDEX ff_waitpoint_pending_expires_idx ON ff_waitpoint_pending USING btree (partition_key, expires_at_ms) WHERE (expires_at_ms IS NOT NULL);

CREATE INDEX ff_worker_registry_ns_inst_idx ON ff_worker_registry USING btree (namespace, worker_instance_id);

CREATE INDEX ffx_create_dedup_expiry_idx ON ffx_create_dedup USING btree (expires_at_ms);

CREATE INDEX ffx_ff_attempt_lease_idx ON ff_attempt USING btree (lease_expires_at_ms, execution_id) WHERE (lease_expires_at_ms IS NOT NULL);

CREATE INDEX ffx_ff_attempt_timeout_idx ON ff_attempt USING btree (ffx_timeout_at_ms) WHERE (ffx_timeout_at_ms IS NOT NULL);

CREATE INDEX ffx_ff_budget_policy_reset_idx ON ff_budget_policy USING btree (next_reset_at_ms) WHERE (next_reset_at_ms IS NOT NULL);

CREATE INDEX ffx_ff_budget_usage_by_exec_purge_idx ON ff_budget_usage_by_exec USING btree (execution_id);

CREATE INDEX ffx_ff_budget_usage_dedup_expiry_idx ON ff_budget_usage_dedup USING btree (expires_at_ms);

CREATE INDEX ffx_ff_cancel_backlog_member_purge_idx ON ff_cancel_backlog_member USING btree (partition_key, execution_id);

CREATE INDEX ffx_ff_completion_event_undispatched_idx ON ff_completion_event USING btree (event_id) WHERE (dispatched_at_ms IS NULL);

CREATE INDEX ffx_ff_edge_downstream_idx ON ff_edge USING btree (partition_key, downstream_eid);

CREATE INDEX ffx_ff_edge_staged_idx ON ff_edge USING btree (partition_key, flow_id, downstream_eid) WHERE ((policy -> 'applied_at_ms'::text) = 'null'::jsonb);

CREATE INDEX ffx_ff_exec_core_adopt_phase_idx ON ff_exec_core USING btree (created_at_ms) WHERE (lifecycle_phase <> ALL (ARRAY['runnable'::text, 'active'::text, 'suspended'::text, 'terminal'::text, 'cancelled'::text]));

CREATE INDEX ffx_ff_exec_core_adopt_public_state_idx ON ff_exec_core USING btree (terminal_at_ms) WHERE ((lifecycle_phase = ANY (ARRAY['terminal'::text, 'cancelled'::text])) AND (public_state <> ALL (ARRAY['completed'::text, 'failed'::text, 'cancelled'::text, 'expired'::text, 'skipped'::text])));

CREATE INDEX ffx_ff_exec_core_claim_idx ON ff_exec_core USING btree (lane_id, priority DESC, created_at_ms, execution_id) WHERE ((lifecycle_phase = 'runnable'::text) AND (eligibility_state = 'eligible_now'::text));

CREATE INDEX ffx_ff_exec_core_deadline_idx ON ff_exec_core USING btree (deadline_at_ms) WHERE ((deadline_at_ms IS NOT NULL) AND (ffx_execution_deadline_ms IS NULL) AND (lifecycle_phase <> ALL (ARRAY['terminal'::text, 'cancelled'::text])));

CREATE INDEX ffx_ff_exec_core_execution_deadline_idx ON ff_exec_core USING btree (ffx_execution_deadline_ms) WHERE ((ffx_execution_deadline_ms > 0) AND (lifecycle_phase <> ALL (ARRAY['terminal'::text, 'cancelled'::text])));

CREATE INDEX ffx_ff_exec_core_gate_idx ON ff_exec_core USING btree (ffx_gate_id, priority DESC, created_at_ms, execution_id) WHERE (ffx_gate_id IS NOT NULL);

CREATE INDEX ffx_ff_exec_core_granted_idx ON ff_exec_core USING btree (execution_id) WHERE (eligibility_state = 'pending_claim'::text);

CREATE INDEX ffx_ff_exec_core_promotion_idx ON ff_exec_core USING btree (deadline_at_ms) WHERE (eligibility_state = 'not_eligible_until_time'::text);

CREATE INDEX ffx_ff_exec_core_retention_idx ON ff_exec_core USING btree (terminal_at_ms, execution_id) WHERE (terminal_at_ms IS NOT NULL);

CREATE INDEX ffx_ff_exec_core_route_idx ON ff_exec_core USING btree (lane_id) WHERE (eligibility_state = 'blocked_by_route'::text);

CREATE INDEX ffx_ff_operator_event_execution_idx ON ff_operator_event USING btree (partition_key, execution_id);

CREATE INDEX ffx_ff_pending_cancel_groups_age_idx ON ff_pending_cancel_groups USING btree (enqueued_at_ms);

CREATE INDEX ffx_ff_quota_window_sweep_idx ON ff_quota_window USING btree (partition_key, quota_policy_id, admitted_at_ms);

CREATE INDEX ffx_ff_signal_event_execution_idx ON ff_signal_event USING btree (partition_key, execution_id);

CREATE INDEX ffx_ff_suspend_dedup_age_idx ON ff_suspend_dedup USING btree (created_at_ms);

CREATE INDEX ffx_ff_suspension_current_timeout_idx ON ff_suspension_current USING btree (timeout_at_ms) WHERE (timeout_at_ms IS NOT NULL);

CREATE INDEX ffx_ff_waitpoint_pending_expiry_idx ON ff_waitpoint_pending USING btree (expires_at_ms) WHERE (expires_at_ms IS NOT NULL);

CREATE TRIGGER ff_completion_event_notify_trg AFTER INSERT ON ff_completion_event FOR EACH STATEMENT WHEN ((current_setting('ffx.defer_notify'::text, true) IS DISTINCT FROM 'on'::text)) EXECUTE FUNCTION ffx_notify_channel('ff_completion');

CREATE TRIGGER ff_lease_event_notify_trg AFTER INSERT ON ff_lease_event FOR EACH STATEMENT WHEN ((current_setting('ffx.defer_notify'::text, true) IS DISTINCT FROM 'on'::text)) EXECUTE FUNCTION ffx_notify_channel('ff_lease_event');

CREATE TRIGGER ff_operator_event_notify_trg AFTER INSERT ON ff_operator_event FOR EACH STATEMENT WHEN ((current_setting('ffx.defer_notify'::text, true) IS DISTINCT FROM 'on'::text)) EXECUTE FUNCTION ffx_notify_channel('ff_operator_event');

CREATE TRIGGER ff_signal_event_notify_trg AFTER INSERT ON ff_signal_event FOR EACH STATEMENT WHEN ((current_setting('ffx.defer_notify'::text, true) IS DISTINCT FROM 'on'::text)) EXECUTE FUNCTION ffx_notify_channel('ff_signal_event');

CREATE TRIGGER ff_stream_frame_notify_trg AFTER INSERT ON ff_stream_frame REFERENCING NEW TABLE AS inserted_frames FOR EACH STATEMENT WHEN ((current_setting('ffx.defer_notify'::text, true) IS DISTINCT FROM 'on'::text)) EXECUTE FUNCTION ffx_notify_stream();

CREATE TRIGGER ffx_ff_completion_event_floor_trg AFTER DELETE ON ff_completion_event REFERENCING OLD TABLE AS deleted_events FOR EACH STATEMENT EXECUTE FUNCTION ffx_record_floor('completion');

CREATE TRIGGER ffx_ff_completion_event_truncate_trg BEFORE TRUNCATE ON ff_completion_event FOR EACH STATEMENT EXECUTE FUNCTION ffx_record_truncate('completion');

CREATE TRIGGER ffx_ff_lease_event_floor_trg AFTER DELETE ON ff_lease_event REFERENCING OLD TABLE AS deleted_events FOR EACH STATEMENT EXECUTE FUNCTION ffx_record_floor('lease');

CREATE TRIGGER ffx_ff_lease_event_truncate_trg BEFORE TRUNCATE ON ff_lease_event FOR EACH STATEMENT EXECUTE FUNCTION ffx_record_truncate('lease');

CREATE TRIGGER ffx_ff_operator_event_floor_trg AFTER DELETE ON ff_operator_event REFERENCING OLD TABLE AS deleted_events FOR EACH STATEMENT EXECUTE FUNCTION ffx_record_floor('operator');

CREATE TRIGGER ffx_ff_operator_event_truncate_trg BEFORE TRUNCATE ON ff_operator_event FOR EACH STATEMENT EXECUTE FUNCTION ffx_record_truncate('operator');

CREATE TRIGGER ffx_ff_signal_event_floor_trg AFTER DELETE ON ff_signal_event REFERENCING OLD TABLE AS deleted_events FOR EACH STATEMENT EXECUTE FUNCTION ffx_record_floor('signal');

CREATE TRIGGER ffx_ff_signal_event_truncate_trg BEFORE TRUNCATE ON ff_signal_event FOR EACH STATEMENT EXECUTE FUNCTION ffx_record_truncate('signal');

