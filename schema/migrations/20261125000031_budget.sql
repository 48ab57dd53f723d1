-- Budgets: the jobs that reset them and forget old keys of reports find their work by time, in all partitions at once.
--
-- usable-from: 20261125000001

-- migrate:up

-- The reference's indexes of the same rows begin with the partition, so that a job would have to ask for each one.
DROP INDEX ff_budget_policy_reset_due_idx;

DROP INDEX ff_budget_usage_dedup_expires_idx;

CREATE INDEX ffx_ff_budget_policy_reset_idx ON ff_budget_policy (next_reset_at_ms)
WHERE next_reset_at_ms IS NOT NULL;

CREATE INDEX ffx_ff_budget_usage_dedup_expiry_idx ON ff_budget_usage_dedup (expires_at_ms);

-- migrate:down

DROP INDEX ffx_ff_budget_usage_dedup_expiry_idx;

DROP INDEX ffx_ff_budget_policy_reset_idx;

CREATE INDEX ff_budget_usage_dedup_expires_idx ON ff_budget_usage_dedup (partition_key, expires_at_ms);

CREATE INDEX ff_budget_policy_reset_due_idx ON ff_budget_policy (partition_key, next_reset_at_ms)
WHERE next_reset_at_ms IS NOT NULL;
