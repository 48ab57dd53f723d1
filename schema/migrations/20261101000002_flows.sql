-- Flows: graphs of executions. A flow, its members, edges and groups share one partition_key.

-- migrate:up

-- One row per flow. graph_revision rises with every member and edge.
CREATE TABLE ff_flow_core (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    graph_revision bigint NOT NULL DEFAULT 0,
    public_flow_state text NOT NULL,
    created_at_ms bigint NOT NULL,
    terminal_at_ms bigint,
    raw_fields jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (partition_key, flow_id)
);

-- Member counts for display, derived from ff_exec_core; never a guard.
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
);

-- One row per dependency. Its state (staged, applied, resolved) is in policy.
CREATE TABLE ff_edge (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    edge_id uuid NOT NULL,
    upstream_eid uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    policy jsonb NOT NULL,
    policy_version integer NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, flow_id, edge_id)
) WITH (
    -- Every edge is rewritten once, when its upstream ends, and grows by its mark: half a page free keeps
    -- that a heap-only update. No index may name policy.
    fillfactor = 50
);

CREATE INDEX ff_edge_downstream_idx ON ff_edge (partition_key, flow_id, downstream_eid)
INCLUDE (upstream_eid, policy_version);

CREATE INDEX ff_edge_upstream_idx ON ff_edge (partition_key, flow_id, upstream_eid);

-- Fan-in per downstream execution: how many upstream outcomes of each kind have arrived.
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
)
WITH (
    -- Counted up in place once per upstream; with the key as its only index every such update can
    -- stay on its page.
    fillfactor = 80
);

-- Groups whose remaining siblings are to be cancelled.
CREATE TABLE ff_pending_cancel_groups (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id, downstream_eid)
);

CREATE INDEX ff_pending_cancel_groups_enqueued_idx ON ff_pending_cancel_groups (partition_key, enqueued_at_ms);

-- Reserved by the reference; no statement of either uses it.
CREATE TABLE ff_cancel_dispatch_outbox (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    target_exec_id uuid NOT NULL,
    reason text NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id, downstream_eid, target_exec_id)
);

CREATE INDEX ff_cancel_dispatch_outbox_enqueued_idx ON ff_cancel_dispatch_outbox (partition_key, enqueued_at_ms);

-- A flow's cancellation that members have yet to acknowledge.
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
);

CREATE INDEX ff_cancel_backlog_grace_idx ON ff_cancel_backlog (partition_key, grace_until_ms)
WHERE grace_until_ms IS NOT NULL;

-- One row per member that has not acknowledged. execution_id is the wire form, {fp:N}:<uuid>.
CREATE TABLE ff_cancel_backlog_member (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    execution_id text NOT NULL,
    PRIMARY KEY (partition_key, flow_id, execution_id)
);

-- migrate:down

DROP TABLE ff_cancel_backlog_member;

DROP TABLE ff_cancel_backlog;

DROP TABLE ff_cancel_dispatch_outbox;

DROP TABLE ff_pending_cancel_groups;

DROP TABLE ff_edge_group;

DROP TABLE ff_edge;

DROP TABLE ff_flow_summary;

DROP TABLE ff_flow_core;
