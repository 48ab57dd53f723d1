-- How long ended executions are kept. They are examined in the order in which they ended, along their completion
-- events, with one position for all periods. A due execution is deleted. One to be kept for longer gets a timer, so
-- that the events can be trimmed by their own age. No index of ff_exec_core has the end of an execution: its updates
-- stay heap-only.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_retention (
    source text PRIMARY KEY,
    event_id bigint NOT NULL DEFAULT 0,
    deleted bigint NOT NULL DEFAULT 0,
    minute bigint NOT NULL DEFAULT 0,
    deleted_in_minute bigint NOT NULL DEFAULT 0,
    deleted_in_minute_before bigint NOT NULL DEFAULT 0
)
WITH (
    -- One row each for a few sources, updated by every batch.
    fillfactor = 10,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);

COMMENT ON TABLE ffx_retention IS
    'How far retention has come, a row for each way by which it finds what to delete. Its lock keeps other processes from the same work.';
COMMENT ON COLUMN ffx_retention.source IS
    'ends (along the completion events), timers (what had to be kept when its end was met), sweep (what neither met), flows, members (which go with their flows).';
COMMENT ON COLUMN ffx_retention.event_id IS
    'Of ends: the last completion event looked at. Set to 0, retention begins anew.';
COMMENT ON COLUMN ffx_retention.deleted IS
    'Executions deleted so far; of flows: flows.';
COMMENT ON COLUMN ffx_retention.minute IS
    'The minute since 1970 in which something was deleted last.';
COMMENT ON COLUMN ffx_retention.deleted_in_minute IS
    'How many in that minute.';
COMMENT ON COLUMN ffx_retention.deleted_in_minute_before IS
    'How many in the minute before it.';

CREATE TABLE ffx_retention_timer (
    due_at_ms bigint NOT NULL,
    timer_id uuid NOT NULL,
    subject text NOT NULL,
    items integer NOT NULL,
    partition_keys smallint[] NOT NULL,
    ids uuid[] NOT NULL,
    PRIMARY KEY (subject, due_at_ms, timer_id)
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000
);

-- Identifiers do not compress.
ALTER TABLE ffx_retention_timer ALTER COLUMN ids SET STORAGE EXTERNAL;

COMMENT ON TABLE ffx_retention_timer IS
    'When to look again at executions that were met before they were due, or could not be deleted yet, and at flows of which members have ended: a row for many. Who looks deletes the row.';
COMMENT ON COLUMN ffx_retention_timer.due_at_ms IS
    'When to look, in Unix milliseconds.';
COMMENT ON COLUMN ffx_retention_timer.timer_id IS
    'Tells rows of the same instant apart.';
COMMENT ON COLUMN ffx_retention_timer.subject IS
    'execution or flow.';
COMMENT ON COLUMN ffx_retention_timer.items IS
    'How many the row stands for.';
COMMENT ON COLUMN ffx_retention_timer.partition_keys IS
    'Their partitions, in the order of ids.';
COMMENT ON COLUMN ffx_retention_timer.ids IS
    'The uuids of the executions or flows. One that is gone is passed over.';

CREATE TABLE ffx_lane_retention (
    lane_id text PRIMARY KEY,
    retention_ms bigint NOT NULL,
    set_at_ms bigint NOT NULL
);

COMMENT ON TABLE ffx_lane_retention IS
    'How long executions of a lane are kept, where it is not the default of the engine. The policy of an execution goes first; members are kept with their flow.';
COMMENT ON COLUMN ffx_lane_retention.lane_id IS
    'The lane; it need not be registered.';
COMMENT ON COLUMN ffx_lane_retention.retention_ms IS
    'Milliseconds from the end of an execution; 9223372036854775807: for ever.';
COMMENT ON COLUMN ffx_lane_retention.set_at_ms IS
    'When it was set, in Unix milliseconds.';

-- The shortest period says how soon an end has to be examined.
CREATE INDEX ffx_lane_retention_shortest_idx ON ffx_lane_retention (retention_ms);

CREATE TABLE ffx_retention_period (
    period_ms bigint PRIMARY KEY
);

COMMENT ON TABLE ffx_retention_period IS
    'The shortest retention that policies of executions ever named, and some of those that were the shortest before: ends have to be looked at that early.';
COMMENT ON COLUMN ffx_retention_period.period_ms IS
    'Milliseconds, rounded up to three significant bits after the first.';

CREATE FUNCTION ffx_retention_of(policy jsonb, lane_ms bigint, default_ms bigint) RETURNS bigint
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN jsonb_typeof(policy -> 'ffx_retention_ms') = 'number' THEN
            CASE
                WHEN (policy ->> 'ffx_retention_ms')::numeric < 0 THEN 9223372036854775807
                ELSE least((policy ->> 'ffx_retention_ms')::numeric, 9223372036854775807)::bigint
            END
        ELSE coalesce(lane_ms, default_ms)
    END;
$$;

COMMENT ON FUNCTION ffx_retention_of(policy jsonb, lane_ms bigint, default_ms bigint) IS
    'How many milliseconds after its end an execution is kept: by its policy, else its lane, else the default; 9223372036854775807: for ever.';

CREATE TABLE ffx_pruned_member (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    node_key text NOT NULL DEFAULT '',
    ended_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id, execution_id)
);

COMMENT ON TABLE ffx_pruned_member IS
    'Members that were deleted before their flow, which asked for that: a growth does not create them again, and what depended on them is not replayed. Deleted with the flow.';
COMMENT ON COLUMN ffx_pruned_member.partition_key IS
    'Logical shard of the flow, 0 to 255.';
COMMENT ON COLUMN ffx_pruned_member.flow_id IS
    'The flow.';
COMMENT ON COLUMN ffx_pruned_member.execution_id IS
    'The member, the uuid half of its id.';
COMMENT ON COLUMN ffx_pruned_member.node_key IS
    'Its key in the flow; empty: it was not created as a node.';
COMMENT ON COLUMN ffx_pruned_member.ended_at_ms IS
    'When it ended, in Unix milliseconds.';

-- For retention, which looks by execution. The rows are in the partitions of the budgets.
CREATE INDEX ffx_ff_budget_usage_by_exec_purge_idx ON ff_budget_usage_by_exec (execution_id);

-- migrate:down

DROP INDEX ffx_ff_budget_usage_by_exec_purge_idx;

DROP TABLE ffx_pruned_member;

DROP FUNCTION ffx_retention_of(jsonb, bigint, bigint);

DROP TABLE ffx_retention_period;

DROP TABLE ffx_lane_retention;

DROP TABLE ffx_retention_timer;

DROP TABLE ffx_retention;
