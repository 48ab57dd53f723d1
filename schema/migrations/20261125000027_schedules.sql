-- Schedules: work that is created at times, by an expression or in an interval. The times are computed in Go; that one
-- has come is decided by the database's clock.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_schedule (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    declared_by text COLLATE "C" NOT NULL,
    cron text NOT NULL,
    time_zone text NOT NULL,
    every_ms bigint NOT NULL,
    jitter_ms bigint NOT NULL,
    start_ms bigint NOT NULL,
    end_ms bigint NOT NULL,
    missed text NOT NULL,
    window_ms bigint NOT NULL,
    overlap text NOT NULL,
    kind text NOT NULL,
    lane_id text NOT NULL,
    payload bytea,
    payload_encoding text NOT NULL,
    priority integer NOT NULL,
    creator text NOT NULL,
    policy text NOT NULL,
    tags jsonb NOT NULL,
    unique_work jsonb,
    sequence jsonb,
    budget_ids uuid[],
    quota_policy_id uuid,
    limits jsonb,
    fair jsonb,
    next_ms bigint,
    tick_ms bigint,
    queued_ms bigint,
    paused_at_ms bigint,
    pause_reason text NOT NULL,
    paused_as_vanished boolean NOT NULL,
    last_tick_ms bigint,
    last_at_ms bigint,
    last_outcome text NOT NULL,
    last_error text NOT NULL,
    last_partition_key smallint,
    last_execution_id uuid,
    recent bytea NOT NULL,
    created_at_ms bigint NOT NULL,
    changed_at_ms bigint NOT NULL,
    PRIMARY KEY (namespace, name)
)
WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

CREATE INDEX ffx_schedule_next_idx ON ffx_schedule (next_ms) WHERE next_ms IS NOT NULL;

CREATE INDEX ffx_schedule_acted_idx ON ffx_schedule (greatest(last_at_ms, changed_at_ms));

CREATE INDEX ffx_schedule_declared_by_idx ON ffx_schedule (namespace, declared_by, name) WHERE declared_by <> '';

COMMENT ON TABLE ffx_schedule IS
    'Schedules: work that is created at times. The transaction that creates the execution of a tick moves its schedule on.';
COMMENT ON COLUMN ffx_schedule.namespace IS
    'Namespace of the schedule and of its executions.';
COMMENT ON COLUMN ffx_schedule.name IS
    'Name of the schedule, unique in its namespace, 1 to 255 bytes.';
COMMENT ON COLUMN ffx_schedule.declared_by IS
    'The set of schedules that declares it; empty: none.';
COMMENT ON COLUMN ffx_schedule.cron IS
    'Cron expression; empty: it has an interval.';
COMMENT ON COLUMN ffx_schedule.time_zone IS
    'IANA name of the zone of the expression; empty: UTC.';
COMMENT ON COLUMN ffx_schedule.every_ms IS
    'Interval in milliseconds, counted from start_ms or the Unix epoch; 0: it has an expression.';
COMMENT ON COLUMN ffx_schedule.jitter_ms IS
    'Longest delay of a tick in milliseconds. Each tick has a delay of its own, derived from the schedule and its time.';
COMMENT ON COLUMN ffx_schedule.start_ms IS
    'No tick is earlier, in milliseconds since the Unix epoch; 0: no limit.';
COMMENT ON COLUMN ffx_schedule.end_ms IS
    'No tick is later, in milliseconds since the Unix epoch; 0: no limit.';
COMMENT ON COLUMN ffx_schedule.missed IS
    'Which of the ticks that are late are created: none, last or all.';
COMMENT ON COLUMN ffx_schedule.window_ms IS
    'How late a tick may be that is created, in milliseconds, if missed is all.';
COMMENT ON COLUMN ffx_schedule.overlap IS
    'What a tick does while the last execution has not ended: allow, skip, queue or cancel.';
COMMENT ON COLUMN ffx_schedule.kind IS
    'Kind of the executions.';
COMMENT ON COLUMN ffx_schedule.lane_id IS
    'Lane of the executions.';
COMMENT ON COLUMN ffx_schedule.payload IS
    'Input of the executions; NULL: none.';
COMMENT ON COLUMN ffx_schedule.payload_encoding IS
    'Encoding of the payload, not interpreted.';
COMMENT ON COLUMN ffx_schedule.priority IS
    'Priority of the executions, 0 to 9000.';
COMMENT ON COLUMN ffx_schedule.creator IS
    'Name of the creator of the executions, informational.';
COMMENT ON COLUMN ffx_schedule.policy IS
    'Policy of the executions, the JSON document; empty: none.';
COMMENT ON COLUMN ffx_schedule.tags IS
    'Tags of the executions, an object of texts, without those of the tick.';
COMMENT ON COLUMN ffx_schedule.unique_work IS
    'Object with what makes the executions unique: by_args, fields, by_lane, period_ms and while; NULL: nothing does.';
COMMENT ON COLUMN ffx_schedule.sequence IS
    'Object with the sequence of the executions: key, and skips; NULL: none.';
COMMENT ON COLUMN ffx_schedule.budget_ids IS
    'Budgets that the executions name, sorted; NULL: none.';
COMMENT ON COLUMN ffx_schedule.quota_policy_id IS
    'The quota policy that the executions name; NULL: none.';
COMMENT ON COLUMN ffx_schedule.limits IS
    'Array with the limits of the executions: objects with name, key, and units unless they are 1; NULL: none.';
COMMENT ON COLUMN ffx_schedule.fair IS
    'Object with the tenant of the executions and its weight, 1 to 1000: tenant, weight; NULL: they have none.';
COMMENT ON COLUMN ffx_schedule.next_ms IS
    'When the schedule is due, in milliseconds since the Unix epoch: at its next tick with its delay, or to look at its last execution; NULL: paused, or ended.';
COMMENT ON COLUMN ffx_schedule.tick_ms IS
    'Time of the next tick, in milliseconds since the Unix epoch; NULL: none follows.';
COMMENT ON COLUMN ffx_schedule.queued_ms IS
    'Time of the tick that waits for the end of the last execution, in milliseconds since the Unix epoch; NULL: none.';
COMMENT ON COLUMN ffx_schedule.paused_at_ms IS
    'When the schedule was paused, in milliseconds since the Unix epoch; NULL: it is not.';
COMMENT ON COLUMN ffx_schedule.pause_reason IS
    'Why it was paused, free text.';
COMMENT ON COLUMN ffx_schedule.paused_as_vanished IS
    'true: it was paused because its set no longer declared it, and goes on when it is declared again.';
COMMENT ON COLUMN ffx_schedule.last_tick_ms IS
    'Time of the last tick that was acted on, in milliseconds since the Unix epoch; NULL: none yet.';
COMMENT ON COLUMN ffx_schedule.last_at_ms IS
    'When it was acted on, in milliseconds since the Unix epoch; NULL: not yet.';
COMMENT ON COLUMN ffx_schedule.last_outcome IS
    'What it did: created, skipped, queued, missed or failed; empty: none yet.';
COMMENT ON COLUMN ffx_schedule.last_error IS
    'Why a tick failed; empty: it did not.';
COMMENT ON COLUMN ffx_schedule.last_partition_key IS
    'Partition of the last execution, 0 to 255; NULL: none yet.';
COMMENT ON COLUMN ffx_schedule.last_execution_id IS
    'The last execution that was created, by a tick or a trigger; NULL: none yet.';
COMMENT ON COLUMN ffx_schedule.recent IS
    'The outcomes of the last ten ticks and triggers, the newest first, 35 bytes each: time of the tick and of the act in milliseconds since the Unix epoch, first letter of the outcome, partition and id of the execution, or zeros.';
COMMENT ON COLUMN ffx_schedule.created_at_ms IS
    'When the schedule was created, in milliseconds since the Unix epoch.';
COMMENT ON COLUMN ffx_schedule.changed_at_ms IS
    'When its definition was changed last, in milliseconds since the Unix epoch.';
-- migrate:down

DROP TABLE ffx_schedule;
