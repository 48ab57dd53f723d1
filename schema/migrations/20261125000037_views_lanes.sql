-- The lanes and how many executions each has in which state, for dashboards.
--
-- usable-from: 20261125000001

-- migrate:up

-- Counts are bounded: those of a lane by its own entries, the others by the first 10,001 of all lanes. Each list below
-- has candidates only; the execution's row says in which state it is.
CREATE VIEW ffx_lane AS
WITH listed AS (
    SELECT l.lane_id
    FROM ff_lane_registry AS l
    UNION
    SELECT h.name
    FROM ffx_pause AS h
    WHERE
        h.subject = 'lane'
        AND (h.until_ms <= ffx_now_ms(NULL)) IS NOT TRUE
),
delayed AS MATERIALIZED (
    SELECT
        e.partition_key,
        e.execution_id
    FROM ff_exec_core AS e
    WHERE
        e.ffx_delay_until_ms IS NOT NULL
        AND e.eligibility_state = 'not_eligible_until_time'
    ORDER BY e.ffx_delay_until_ms
    LIMIT 10001
),
leased AS MATERIALIZED (
    SELECT
        t.partition_key,
        t.execution_id
    FROM (
        SELECT
            unnest(w.partition_keys) AS partition_key,
            unnest(w.execution_ids) AS execution_id
        FROM ffx_lease_timer AS w
        ORDER BY
            w.due_at_ms,
            w.timer_id
    ) AS t
    LIMIT 10001
),
gated AS MATERIALIZED (
    SELECT
        w.partition_key,
        w.execution_id
    FROM ffx_waiting AS w
    ORDER BY
        w.gate_id,
        w.rank,
        w.created_at_ms,
        w.execution_id,
        w.partition_key
    LIMIT 10001
),
suspended AS MATERIALIZED (
    SELECT
        s.partition_key,
        s.execution_id
    FROM ff_suspension_current AS s
    WHERE s.ffx_open_since_ms IS NOT NULL
    ORDER BY
        s.ffx_open_since_ms,
        s.partition_key,
        s.execution_id
    LIMIT 10001
),
placed AS MATERIALIZED (
    SELECT
        m.execution_partition_key AS partition_key,
        m.execution_id
    FROM ffx_sequence_member AS m
    ORDER BY
        m.partition_key,
        m.sequence_id,
        m.place
    LIMIT 10001
),
members AS MATERIALIZED (
    SELECT
        x.partition_key,
        x.execution_id
    FROM (
        SELECT
            f.partition_key,
            f.flow_id
        FROM ff_flow_summary AS f
        WHERE f.members_waiting_children > 0
        ORDER BY
            f.partition_key,
            f.flow_id
        LIMIT 10001
    ) AS t
    CROSS JOIN LATERAL (
        SELECT
            e.partition_key,
            e.execution_id
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = t.partition_key
            AND e.flow_id = t.flow_id
        OFFSET 0
    ) AS x
    LIMIT 10001
),
counted AS MATERIALIZED (
    SELECT
        e.lane_id,
        count(*) FILTER (WHERE e.state = 'delayed') AS delayed,
        count(*) FILTER (WHERE e.state = 'active') AS active,
        count(*) FILTER (WHERE e.state = 'limited') AS limited,
        count(*) FILTER (WHERE e.state = 'suspended') AS suspended,
        count(*) FILTER (WHERE e.state = 'dependent') AS dependent
    FROM (
        SELECT d.partition_key, d.execution_id FROM delayed AS d
        UNION
        SELECT l.partition_key, l.execution_id FROM leased AS l
        UNION
        SELECT g.partition_key, g.execution_id FROM gated AS g
        UNION
        SELECT s.partition_key, s.execution_id FROM suspended AS s
        UNION
        SELECT p.partition_key, p.execution_id FROM placed AS p
        UNION
        SELECT m.partition_key, m.execution_id FROM members AS m
    ) AS u
    CROSS JOIN LATERAL (
        SELECT
            x.lane_id,
            CASE
                WHEN x.lifecycle_phase IN ('active', 'suspended') THEN x.lifecycle_phase
                WHEN x.lifecycle_phase <> 'runnable' THEN NULL
                WHEN x.eligibility_state = 'not_eligible_until_time' THEN 'delayed'
                WHEN x.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota') THEN 'limited'
                WHEN x.eligibility_state = 'blocked_by_dependencies' THEN 'dependent'
            END AS state
        FROM ff_exec_core AS x
        WHERE
            x.partition_key = u.partition_key
            AND x.execution_id = u.execution_id
        LIMIT 1
    ) AS e
    WHERE e.state IS NOT NULL
    GROUP BY e.lane_id
)
SELECT
    l.lane_id,
    ffx_read_instant(h.paused_at_ms) AS paused_since,
    h.reason AS pause_reason,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM ffx_ready AS r
            WHERE r.lane_id = l.lane_id
            LIMIT 10001
        ) AS n
    ) AS waiting,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM ffx_blocked AS b
            WHERE b.lane_id = l.lane_id COLLATE "C"
            LIMIT 10001
        ) AS n
    ) AS blocked,
    coalesce(c.delayed, 0) AS delayed,
    coalesce(c.active, 0) AS active,
    coalesce(c.limited, 0) AS limited,
    coalesce(c.suspended, 0) AS suspended,
    coalesce(c.dependent, 0) AS dependent,
    greatest(
        (SELECT count(*) FROM delayed), (SELECT count(*) FROM leased), (SELECT count(*) FROM gated),
        (SELECT count(*) FROM suspended), (SELECT count(*) FROM placed), (SELECT count(*) FROM members)
    ) > 10000 AS partial,
    ffx_read_instant(h.until_ms) AS paused_until
FROM listed AS l
LEFT JOIN ffx_pause AS h
    ON h.subject = 'lane'
    AND h.name = l.lane_id COLLATE "C"
    AND (h.until_ms <= ffx_now_ms(NULL)) IS NOT TRUE
LEFT JOIN counted AS c
    ON c.lane_id = l.lane_id;

COMMENT ON VIEW ffx_lane IS
    'Lanes with executions created on them, or that are paused, one row each, and how many executions each has in which state. An interface: columns keep name, type and meaning, new ones come behind. Each query counts anew: ask a few times a minute.';
COMMENT ON COLUMN ffx_lane.lane_id IS
    'Name of the lane.';
COMMENT ON COLUMN ffx_lane.paused_since IS
    'Since when the lane is paused; NULL: it is not.';
COMMENT ON COLUMN ffx_lane.pause_reason IS
    'Reason given for the pause; NULL: it is not paused.';
COMMENT ON COLUMN ffx_lane.waiting IS
    'Executions that a worker may claim. 10001: there are more.';
COMMENT ON COLUMN ffx_lane.blocked IS
    'Executions that are blocked by an operator, or for lack of a capable worker. 10001: there are more.';
COMMENT ON COLUMN ffx_lane.delayed IS
    'Executions that wait for a time set by their creator, a handler or a retry.';
COMMENT ON COLUMN ffx_lane.active IS
    'Executions that a worker has leased.';
COMMENT ON COLUMN ffx_lane.limited IS
    'Executions that wait until a budget or a limit admits them.';
COMMENT ON COLUMN ffx_lane.suspended IS
    'Executions that wait for a signal, for a called execution, or until somebody resumes them.';
COMMENT ON COLUMN ffx_lane.dependent IS
    'Executions that wait for upstreams in their flow, as of its last summary, or for the member before them in a sequence.';
COMMENT ON COLUMN ffx_lane.partial IS
    'Whether delayed, active, limited, suspended or dependent may be too low: of one of them there are more than 10,000 over all lanes.';
COMMENT ON COLUMN ffx_lane.paused_until IS
    'When the pause ends by itself; NULL: the lane is not paused, or until an operator resumes it.';

-- migrate:down

DROP VIEW ffx_lane;
