-- Budgets limit an accumulated amount, quotas a rate or a concurrency. partition_key is that of the
-- budget or of the quota policy, never that of an execution. Ids are bare uuids in text.

-- migrate:up

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
)
WITH (
    -- Few rows, each written by every breach: half the page is left for heap-only updates.
    fillfactor = 50
);

CREATE INDEX ff_budget_policy_reset_due_idx ON ff_budget_policy (partition_key, next_reset_at_ms)
WHERE next_reset_at_ms IS NOT NULL;

-- Usage per budget and dimension.
CREATE TABLE ff_budget_usage (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    dimensions_key text NOT NULL,
    current_value bigint NOT NULL DEFAULT 0,
    last_reset_at_ms bigint,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, dimensions_key)
)
WITH (
    -- Few rows, each written by every report.
    fillfactor = 50
);

-- Outcomes of reports by deduplication key.
CREATE TABLE ff_budget_usage_dedup (
    partition_key smallint NOT NULL,
    dedup_key text NOT NULL,
    outcome_json jsonb NOT NULL,
    applied_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, dedup_key)
);

CREATE INDEX ff_budget_usage_dedup_expires_idx ON ff_budget_usage_dedup (partition_key, expires_at_ms);

-- What each execution spent of a budget, so that it can be released.
CREATE TABLE ff_budget_usage_by_exec (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    execution_id uuid NOT NULL,
    dimensions_key text NOT NULL,
    delta_total bigint NOT NULL DEFAULT 0,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, execution_id, dimensions_key)
);

CREATE TABLE ff_quota_policy (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    -- The length of the window in seconds.
    requests_per_window_seconds bigint NOT NULL,
    max_requests_per_window bigint NOT NULL,
    -- 0: no limit.
    active_concurrency_cap bigint NOT NULL,
    active_concurrency bigint NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, quota_policy_id)
)
WITH (
    -- Few rows, each written by every admission and release.
    fillfactor = 50
);

-- One row per admission within the window. execution_id is the wire form, as in the next table.
CREATE TABLE ff_quota_window (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    dimension text NOT NULL DEFAULT '',
    admitted_at_ms bigint NOT NULL,
    execution_id text NOT NULL,
    PRIMARY KEY (partition_key, quota_policy_id, dimension, admitted_at_ms, execution_id)
)
WITH (
    -- Rows live for one window, often seconds: the count of a window must not walk over the dead.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

-- One row per slot held.
CREATE TABLE ff_quota_admitted (
    partition_key smallint NOT NULL,
    quota_policy_id text NOT NULL,
    execution_id text NOT NULL,
    admitted_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, quota_policy_id, execution_id)
);

CREATE INDEX ff_quota_admitted_expires_idx ON ff_quota_admitted (partition_key, expires_at_ms);

-- migrate:down

DROP TABLE ff_quota_admitted;

DROP TABLE ff_quota_window;

DROP TABLE ff_quota_policy;

DROP TABLE ff_budget_usage_by_exec;

DROP TABLE ff_budget_usage_dedup;

DROP TABLE ff_budget_usage;

DROP TABLE ff_budget_policy;
