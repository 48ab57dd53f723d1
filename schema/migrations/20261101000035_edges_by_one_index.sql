-- Edges are found by their upstream or their downstream. All indexes of ff_edge begin with the partition, so that a planner
-- who takes the table for nearly empty, because it was vacuumed or analysed while a flow of thousands was being created,
-- may use any of them: it reads all edges of the flow then, for each of ten thousand lookups. So each of the two has an
-- index that begins with it, and the statements are written so that no other can serve them.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_ff_edge_upstream_idx
-- review: allow lock-blocks-writers until 2027-11-20: nothing has been released, so nobody has edges yet
CREATE INDEX ffx_ff_edge_upstream_idx ON ff_edge (upstream_eid);

-- object: ffx_ff_edge_downstream_eid_idx
-- review: allow lock-blocks-writers until 2027-11-20: nothing has been released, so nobody has edges yet
CREATE INDEX ffx_ff_edge_downstream_eid_idx ON ff_edge (downstream_eid);

-- object: ffx_ff_edge_downstream_idx replaced
-- review: allow lock-without-timeout until 2027-11-20: Migrate sets lock_timeout, and tries again
DROP INDEX ffx_ff_edge_downstream_idx;

-- migrate:down

CREATE INDEX ffx_ff_edge_downstream_idx ON ff_edge (partition_key, downstream_eid);

DROP INDEX ffx_ff_edge_downstream_eid_idx;

DROP INDEX ffx_ff_edge_upstream_idx;
