-- Edges are found by their upstream or their downstream. The first flow that a database has may be a fan, analysed with
-- ten edges that all have one upstream: who looks edges up by it would then find the same by reading all, says the
-- planner, and reads all, for each of ten thousand lookups. So how many upstreams, downstreams and flows there are to an
-- edge is told here, and not taken from what was analysed. It holds from the next ANALYZE on.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: distinct columns of ff_edge
DO $$
DECLARE
    edges regclass;
BEGIN
    -- With its partitions, where it has some: a partition does not inherit it.
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

-- migrate:down

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
