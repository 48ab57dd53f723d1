-- Resolution beside FlowFabric: its replays are told from those of this library, and the summary of a flow is written
-- here too.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_replayed_elsewhere
CREATE FUNCTION ffx_replayed_elsewhere(raw_fields jsonb) RETURNS boolean
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT raw_fields ? 'replay_count'
        AND raw_fields ->> 'replay_count' IS DISTINCT FROM raw_fields ->> 'ffx_replay_count';
$$;

COMMENT ON FUNCTION ffx_replayed_elsewhere(jsonb) IS
    'From raw_fields of an execution: another program has replayed it, which leaves what its earlier end counted in edge groups. A replay of this library takes it back, and stores in ffx_replay_count which replay that was.';

-- object: comments on ff_flow_summary as written here
COMMENT ON TABLE ff_flow_summary IS
    'Counts of a flow''s members, written whole by this library''s Maintenance.SummariseFlows and by FlowFabric''s project_flow_summary; for display, possibly old, never a guard. A flow without members has no row.';

-- migrate:down

COMMENT ON TABLE ff_flow_summary IS
    'Counts of a flow''s members, written whole by FlowFabric''s project_flow_summary; for display, possibly old, never a guard. A flow without members has no row. This library does not write it.';
DROP FUNCTION ffx_replayed_elsewhere(jsonb);
