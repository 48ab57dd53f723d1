-- Comments on FlowFabric's tables of budgets, quotas and workers, and on those that its server reads when it starts.
--
-- usable-from: 20261125000001

-- migrate:up

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
    'Milliseconds since the Unix epoch: when its usage goes back to 0, or with ffx_retention_ms when a job looks whether it is unused; NULL: never.';

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

-- migrate:down

DO $$
DECLARE
    tables CONSTANT text[] := ARRAY[
            'ff_budget_policy', 'ff_budget_usage', 'ff_budget_usage_dedup', 'ff_budget_usage_by_exec',
            'ff_quota_policy', 'ff_quota_window', 'ff_quota_admitted', 'ff_worker_registry',
            'ff_worker_registry_event', 'ff_partition_config', 'ff_migration_annotation'
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

DO $$
BEGIN
    IF to_regclass('_sqlx_migrations') IS NOT NULL THEN
        COMMENT ON TABLE _sqlx_migrations IS NULL;
        COMMENT ON COLUMN _sqlx_migrations.version IS NULL;
        COMMENT ON COLUMN _sqlx_migrations.description IS NULL;
        COMMENT ON COLUMN _sqlx_migrations.installed_on IS NULL;
        COMMENT ON COLUMN _sqlx_migrations.success IS NULL;
        COMMENT ON COLUMN _sqlx_migrations.checksum IS NULL;
        COMMENT ON COLUMN _sqlx_migrations.execution_time IS NULL;
    END IF;
END;
$$;
