-- A group may wait for all of its upstreams, and then ask how they ended. FlowFabric reads it as a quorum that is never
-- decided.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: comments on groups that wait for all
COMMENT ON TABLE ff_edge_group IS
    'One row per member that waits for others: how many of its upstreams ended how. The four counts together are the edges applied into it, and where policy has a key ffx_when 1000000000 more.';
COMMENT ON COLUMN ff_edge_group.policy IS
    'When it may run, exactly one of {"kind":"all_of"}, {"kind":"any_of","on_satisfied":S}, {"kind":"quorum","k":N,"on_satisfied":S}, {"kind":"quorum","k":1000000000,"on_satisfied":"let_run","ffx_when":W}; S is cancel_remaining or let_run. W: on_failure, once all upstreams have ended and one of them without success; always, once all have ended.';
COMMENT ON COLUMN ff_edge_group.k_target IS
    'Successes that satisfy the group: 1, k or the number of edges. 0: by FlowFabric, which never writes it; derived from policy. 1000000000: successes alone never do.';
COMMENT ON COLUMN ff_edge_group.running_count IS
    'Upstreams that have not ended; where policy has a key ffx_when 1000000000 more, so that FlowFabric decides nothing about the group.';

-- migrate:down

COMMENT ON TABLE ff_edge_group IS
    'One row per member that waits for others: how many of its upstreams ended how. The four counts together are the edges applied into it.';
COMMENT ON COLUMN ff_edge_group.policy IS
    'When it may run, exactly one of {"kind":"all_of"}, {"kind":"any_of","on_satisfied":S}, {"kind":"quorum","k":N,"on_satisfied":S}; S is cancel_remaining or let_run.';
COMMENT ON COLUMN ff_edge_group.k_target IS
    'Successes that satisfy the group: 1, k or the number of edges. 0: by FlowFabric, which never writes it; derived from policy.';
COMMENT ON COLUMN ff_edge_group.running_count IS
    'Upstreams that have not ended.';
