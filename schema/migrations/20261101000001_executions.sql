-- Executions, their attempts and the grants to claim them, as FlowFabric 0.15 knows them.
--
-- The tables of this file and of the files up to 20261101000008 are shared ground: their columns,
-- types, defaults, constraint names and column order are the reference's. Indexes that no statement
-- needs are left out. What this library adds to them comes from 20261101000009 on.
--
-- partition_key is the logical shard (0 to 255) and leads the keys; nothing here is partitioned.
-- Columns ending in _ms are milliseconds since the Unix epoch. There are no foreign keys: the
-- reference deletes in an order that would violate them.

-- migrate:up

-- One row per execution: the authoritative state.
CREATE TABLE ff_exec_core (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    flow_id uuid,
    lane_id text NOT NULL,
    required_capabilities text[] NOT NULL DEFAULT '{}',
    -- The newest attempt row, or the index a pending attempt will get.
    attempt_index integer NOT NULL DEFAULT 0,
    lifecycle_phase text NOT NULL,
    ownership_state text NOT NULL,
    eligibility_state text NOT NULL,
    public_state text NOT NULL,
    attempt_state text NOT NULL,
    blocking_reason text,
    cancellation_reason text,
    cancelled_by text,
    -- Higher is claimed first.
    priority integer NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    terminal_at_ms bigint,
    -- The execution's deadline, or the wake time of a delayed one if that is sooner.
    deadline_at_ms bigint,
    payload bytea,
    result bytea,
    policy jsonb,
    raw_fields jsonb NOT NULL DEFAULT '{}',
    started_at_ms bigint,
    lease_reclaim_count integer NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, execution_id)
)
WITH (
    -- Room for heap-only updates by progress, tags and counts. Claim and completion change indexed
    -- columns and never are heap-only, so less than this would only make the table larger.
    fillfactor = 80,
    -- Each life leaves dead entries at the head of the claim index; with the default of a fifth of
    -- the table a claim would walk over hundreds of thousands of them between two vacuums.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    -- A queue that fills and empties outruns the default statistics, and plans with them.
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_analyze_threshold = 1000
);

-- Members of a flow.
CREATE INDEX ff_exec_core_flow_idx ON ff_exec_core (partition_key, flow_id)
WHERE flow_id IS NOT NULL;

-- One row per attempt: the lease and how it ended.
CREATE TABLE ff_attempt (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    worker_id text,
    worker_instance_id text,
    -- The fencing token: raised by every claim.
    lease_epoch bigint NOT NULL DEFAULT 0,
    lease_expires_at_ms bigint,
    started_at_ms bigint,
    terminal_at_ms bigint,
    outcome text,
    usage jsonb,
    policy jsonb,
    raw_fields jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (partition_key, execution_id, attempt_index)
)
WITH (
    -- Room for heap-only updates of stream positions; a lease's expiry is indexed.
    fillfactor = 80,
    -- Renewals and endings leave dead entries in the lease index that the expiry scan reads.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_analyze_threshold = 1000
);

-- Short-lived permission for one worker to claim or reclaim one execution.
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
);

CREATE INDEX ff_claim_grant_execution_idx ON ff_claim_grant (partition_key, execution_id);

CREATE INDEX ff_claim_grant_expiry_idx ON ff_claim_grant (expires_at_ms);

-- Lanes seen by a creation.
CREATE TABLE ff_lane_registry (
    lane_id text PRIMARY KEY,
    registered_at_ms bigint NOT NULL,
    registered_by text NOT NULL
);

-- migrate:down

DROP TABLE ff_lane_registry;

DROP TABLE ff_claim_grant;

DROP TABLE ff_attempt;

DROP TABLE ff_exec_core;
