-- Suspensions, the waitpoints that resolve them and the keys that sign waitpoint tokens.

-- migrate:up

-- The latest suspension of an execution; it may outlive the resume.
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
);

CREATE INDEX ff_suspension_current_suspended_at_idx ON ff_suspension_current (partition_key, suspended_at_ms);

CREATE INDEX ff_suspension_current_timeout_idx ON ff_suspension_current (partition_key, timeout_at_ms)
WHERE timeout_at_ms IS NOT NULL;

-- Open waitpoints. token is a bearer secret.
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
);

CREATE INDEX ff_waitpoint_pending_expires_idx ON ff_waitpoint_pending (partition_key, expires_at_ms)
WHERE expires_at_ms IS NOT NULL;

CREATE INDEX ff_waitpoint_pending_exec_idx ON ff_waitpoint_pending (partition_key, execution_id);

-- Keys that sign tokens; the active one with the greatest rotated_at_ms signs, the others verify.
CREATE TABLE ff_waitpoint_hmac (
    kid text PRIMARY KEY,
    secret bytea NOT NULL,
    rotated_at_ms bigint NOT NULL,
    active boolean NOT NULL DEFAULT true
);

-- Outcomes of suspend calls by idempotency key. They contain tokens.
CREATE TABLE ff_suspend_dedup (
    partition_key smallint NOT NULL,
    idempotency_key text NOT NULL,
    outcome_json jsonb NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, idempotency_key)
);

-- migrate:down

DROP TABLE ff_suspend_dedup;

DROP TABLE ff_waitpoint_hmac;

DROP TABLE ff_waitpoint_pending;

DROP TABLE ff_suspension_current;
