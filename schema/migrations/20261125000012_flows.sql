-- Edges of flows, and the cancellation of flows and of siblings.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE FUNCTION ffx_replayed_elsewhere(raw_fields jsonb) RETURNS boolean
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT raw_fields ? 'replay_count'
        AND raw_fields ->> 'replay_count' IS DISTINCT FROM raw_fields ->> 'ffx_replay_count';
$$;

COMMENT ON FUNCTION ffx_replayed_elsewhere(raw_fields jsonb) IS
    'From raw_fields of an execution: another program has replayed it, which leaves what its earlier end counted in edge groups. A replay of this library takes it back, and stores in ffx_replay_count which replay that was.';

-- Edges are found by their upstream or their downstream. FlowFabric's indexes of ff_edge begin with the partition. On a
-- table that was analysed while it was nearly empty the planner may use any of them, and then reads all edges of the
-- flow for each of ten thousand lookups. This index and the next begin with the column, and the statements are written
-- so that no other index can serve them.
CREATE INDEX ffx_ff_edge_upstream_idx ON ff_edge (upstream_eid);

CREATE INDEX ffx_ff_edge_downstream_eid_idx ON ff_edge (downstream_eid);

-- The first flow of a database may be a fan, analysed with ten edges that all have one upstream. The planner would
-- then read the whole table for each lookup. So the numbers of upstreams, downstreams and flows per edge are set here,
-- and not measured. They count from the next ANALYZE on.
DO $$
DECLARE
    edges regclass;
BEGIN
    -- Its partitions too, if it has any: they do not inherit the setting.
    FOR edges IN
        SELECT 'ff_edge'::regclass
        UNION
        SELECT p.relid FROM pg_partition_tree('ff_edge') AS p
    LOOP
        EXECUTE format(
            'ALTER TABLE ONLY %s ALTER COLUMN flow_id SET (n_distinct = -0.1),'
            ' ALTER COLUMN upstream_eid SET (n_distinct = -0.5), ALTER COLUMN downstream_eid SET (n_distinct = -0.5)',
            edges
        );
    END LOOP;
END;
$$;

CREATE INDEX ffx_ff_pending_cancel_groups_age_idx ON ff_pending_cancel_groups (enqueued_at_ms);

-- Requests to cancel a flow, in the order in which their grace ends: a job looks for those that are due, and many may
-- be waiting. A request is written and deleted once, and no execution changes it.
CREATE INDEX ffx_cancel_backlog_due_idx ON ff_cancel_backlog
((coalesce(grace_until_ms, requested_at_ms)), partition_key, flow_id);

-- For retention, which looks by execution.
CREATE INDEX ffx_ff_cancel_backlog_member_purge_idx ON ff_cancel_backlog_member (partition_key, execution_id);

-- The flows with members that wait for upstreams, as of their last summary, for counts by lane. A count over all
-- executions would need an index that every claim pays for; a summary is written twice a minute.
CREATE INDEX ffx_ff_flow_summary_dependent_idx ON ff_flow_summary (partition_key, flow_id)
WHERE members_waiting_children > 0;

-- migrate:down

DROP INDEX ffx_ff_flow_summary_dependent_idx;

DROP INDEX ffx_ff_cancel_backlog_member_purge_idx;

DROP INDEX ffx_cancel_backlog_due_idx;

DROP INDEX ffx_ff_pending_cancel_groups_age_idx;

DO $$
DECLARE
    edges regclass;
BEGIN
    FOR edges IN
        SELECT 'ff_edge'::regclass
        UNION
        SELECT p.relid FROM pg_partition_tree('ff_edge') AS p
    LOOP
        EXECUTE format(
            'ALTER TABLE ONLY %s ALTER COLUMN flow_id RESET (n_distinct),'
            ' ALTER COLUMN upstream_eid RESET (n_distinct), ALTER COLUMN downstream_eid RESET (n_distinct)',
            edges
        );
    END LOOP;
END;
$$;

DROP INDEX ffx_ff_edge_downstream_eid_idx;

DROP INDEX ffx_ff_edge_upstream_idx;

DROP FUNCTION ffx_replayed_elsewhere(jsonb);
