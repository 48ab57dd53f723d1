-- What a FlowFabric 0.15 server looks for when it starts on this database: its configuration row, its
-- annotations and its ledger of migrations. This library reads none of them except the ledger, by
-- which it recognises a database.

-- migrate:up

CREATE TABLE ff_partition_config (
    singleton_lock boolean NOT NULL DEFAULT true PRIMARY KEY,
    num_flow_partitions integer NOT NULL,
    num_budget_partitions integer NOT NULL,
    num_quota_partitions integer NOT NULL,
    ff_version text NOT NULL,
    CONSTRAINT ff_partition_config_singleton_lock_check CHECK (singleton_lock)
);

-- The reference's own row. It routes budgets and quotas by 32 partitions all the same and never reads
-- these numbers; nor may anyone else.
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

-- The reference has no version 15 and annotated neither 18, 21 nor 22.
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

-- A server that once started on the database before its tables existed leaves this table empty.
CREATE TABLE IF NOT EXISTS _sqlx_migrations (
    version bigint PRIMARY KEY,
    description text NOT NULL,
    installed_on timestamptz NOT NULL DEFAULT now(),
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);

-- checksum is the SHA-384 of the reference's migration file. One row more, or less, and its server
-- refuses to start or migrates again: this library's migrations go to ffx_schema_migrations.
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
VALUES
    (1, 'initial', true, '\x9ff7e96a98ffd0cfa2f3eb32e0f9482ad1905dc78cdc52bdb87e3d68794771a7f2e06a8294449ddd1b7f516beddf1b40', 0),
    (2, 'budget', true, '\xa81355439c91e16dd62e6f29169507b76db85605f688b815e3134d1956171b97b9581794f8af0f0fdb6780d3b2eb3ebd', 0),
    (3, 'dispatch outbox', true, '\x9efca66d6be816411a9413c3aae787c5a154059c63866c1c03d6ceb2389b85b34328314258eb8c715c6ed9c91b5e4fa7', 0),
    (4, 'suspend signal', true, '\x53be2f02f84d9de6969732cfe8fa3c50dc3d828ef50d0165bf88327594f27ec652f2c60cc97bd81212f93484751d03f9', 0),
    (5, 'timeout scanners', true, '\x964a72a0747971ebd580dd4b6bcf1999a972f59a14cc78d0ef47f7e4782829c0b3db5da94e803f086ccefab6b550c040', 0),
    (6, 'lease event outbox', true, '\xcc165744de11e412fe744823c98a9d18b5f697d6f64a95abc5971f060fa1a99bfdac126ddd9aff64534b04c3c9974490', 0),
    (7, 'signal event outbox', true, '\xc2f317da61d8b95b32f77857dc9524e8512bf8ed6051a03102dffc72b264a85b2df162d2e0235b34e0413f758f47a920', 0),
    (8, 'lease event instance tag', true, '\x7238cd72a0fb711dc1ed014988955bcc5e87ca79979c42cfc33dac989eefcbc65d2f49099f942f4b67e02a870004cc19', 0),
    (9, 'signal event instance tag', true, '\x011f4e616d5d1b52cfe78bfca35efc1464ca385d41443dc8195138aaadb751eb261aff29886fa1c370967164d2a34dcc', 0),
    (10, 'operator event outbox', true, '\x4f13556be64c5b25ab533738226309624da50d06f877af407b111b6d7021405abd340c8f54d5e34af33a0b54fdc5e82e', 0),
    (11, 'waitpoint pending extensions', true, '\xdcc06ee568795ad9d3f359457f9f0c4da9f4930f011a8e28285b4f20b70b927dd46b3eb798869d7ede96ff6a8809ab7c', 0),
    (12, 'quota policy', true, '\xbc113a49b73b0bb5b1bfc64078fe8542058e73b8ad76e45f16936354f3d12460d83aca4518511354e6e0829dcd14ce56', 0),
    (13, 'budget policy extensions', true, '\x7c843e7d483dccecdcf783272e426bd3a0b8225d38d9a2384cd60e8f7e4ffb1fe36ceff0eb4a7dc1744bf89c1050df36', 0),
    (14, 'cancel backlog', true, '\xd6c600cb1d2faf649bc2caa564169ebe73156797ab139a80ef2b9d3d720f21b929aef7832ad490d0dd979881eec3605b', 0),
    (16, 'started at ms', true, '\x2a69a24097418ea8e0d8296bb2a0e4f37c95bbd7df6f41d1eb3c61afcd0a0078e56af5bd1a6f9e4647c1831a9a9c15ab', 0),
    (17, 'claim grant table', true, '\xb6d267f539120b8d454d528c4dbb8e54c44ffafadf25342dec3f176d30c8fa22a28c61b8c13fbabbabd56fde44f3f2fd', 0),
    (18, 'completion event lookup idx', true, '\x8e46ca6420854d0381583e026e3824711efc4d09ddb7a6eb79120346a84aaf9ea7d695c3989d02a37a47d496a007156a', 0),
    (19, 'flow summary', true, '\xc7558a668b756efec6453e66f1f9e28be58d01928a58963841a8d9773c3b65ccafc820402bdf4dc9628f0891c6a301f6', 0),
    (20, 'budget usage by exec', true, '\x818839cadb8c9fee615964951b6a788dbd8cfb44d4e6a6f6cb11ddcb471612e5dc45f7403f8d9146a8e3d067df316b7e', 0),
    (21, 'worker registry', true, '\x8ef0d6feb183a6bd15ebc6f1dfa3d9a47004a84544daf56f675e28ef9ee365025d8e24333a77c82eb80255805a91b825', 0),
    (22, 'worker registry event pk', true, '\xfe57077fab6ff1cc0a114b47b57383b021273829376947e2028c20f29a10343d47340a809d042ef044e711d241b59005', 0);

-- migrate:down

DROP TABLE _sqlx_migrations;

DROP TABLE ff_migration_annotation;

DROP TABLE ff_partition_config;
