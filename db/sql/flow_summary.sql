-- name: ScanFlowSummaries :many
-- ScanFlowSummaries returns the first page_size flows after a place in the order of the primary key. It returns how
-- many members each has ever had, and whether its summary is settled: it says that all members have ended, and since
-- it was written the flow has had no new members and no replay.
--
-- Used by: engine.SummariseFlows.
-- Locks: none. Spans partitions.
WITH page AS MATERIALIZED (
    SELECT
        f.partition_key,
        f.flow_id,
        coalesce(ffx_read_number(f.raw_fields, 'node_count'), 0) AS node_count,
        coalesce(ffx_read_number(f.raw_fields, 'last_mutation_at_ms'), f.created_at_ms) AS changed_at_ms
    FROM ff_flow_core AS f
    WHERE (f.partition_key, f.flow_id) > (@after_partition_key::smallint, @after_flow_id::uuid)
    ORDER BY
        f.partition_key,
        f.flow_id
    LIMIT @page_size::integer
)
SELECT
    p.partition_key,
    p.flow_id,
    p.node_count::bigint AS node_count,
    coalesce(s.public_flow_state IN ('completed', 'failed') AND s.last_summary_update_at > p.changed_at_ms, false)::boolean AS settled
FROM page AS p
LEFT JOIN LATERAL (
    SELECT
        t.public_flow_state,
        t.last_summary_update_at
    FROM ff_flow_summary AS t
    WHERE
        t.partition_key = p.partition_key
        AND t.flow_id = p.flow_id
    LIMIT 1
) AS s ON true
ORDER BY
    p.partition_key,
    p.flow_id;

-- name: SummariseFlows :execrows
-- SummariseFlows counts the members of flows by state and writes the counts into their summaries. A flow that has no
-- members, or was deleted, gets no summary. An equal summary is written only if its flow has changed since; a newer
-- one, or one that another transaction holds, stays unchanged. Returns how many it wrote.
--
-- Used by: engine.SummariseFlows.
-- Locks: L0 skips (flow rows FOR KEY SHARE, which conflicts only with deleting the flow, and rows of summaries FOR NO
-- KEY UPDATE, then the INSERT). The caller sorts by (partition_key, flow_id).
WITH clock AS MATERIALIZED (
    -- The time of the summaries.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    -- The flows.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@flow_ids::uuid[])
),
counted AS MATERIALIZED (
    -- Their members, each in one bucket.
    SELECT
        i.partition_key,
        i.flow_id,
        m.*
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS total,
            count(*) FILTER (WHERE b.bucket = 'success')::integer AS completed,
            count(*) FILTER (WHERE b.bucket IN ('failed', 'none'))::integer AS failed,
            count(*) FILTER (WHERE b.bucket = 'cancelled')::integer AS cancelled,
            count(*) FILTER (WHERE b.bucket = 'expired')::integer AS expired,
            count(*) FILTER (WHERE b.bucket = 'skipped')::integer AS skipped,
            count(*) FILTER (WHERE b.bucket = 'active')::integer AS active,
            count(*) FILTER (WHERE b.bucket = 'suspended')::integer AS suspended,
            count(*) FILTER (WHERE b.bucket = 'waiting')::integer AS waiting,
            count(*) FILTER (WHERE b.bucket = 'delayed')::integer AS delayed,
            count(*) FILTER (WHERE b.bucket = 'rate_limited')::integer AS rate_limited,
            count(*) FILTER (WHERE b.bucket = 'waiting_children')::integer AS waiting_children
        FROM ff_exec_core AS e
        LEFT JOIN LATERAL (
            SELECT x.outcome
            FROM ff_attempt AS x
            WHERE
                e.lifecycle_phase = 'terminal'
                AND x.partition_key = e.partition_key
                AND x.execution_id = e.execution_id
                AND x.attempt_index = e.attempt_index
            LIMIT 1
        ) AS p ON true
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN e.lifecycle_phase = 'cancelled' THEN 'cancelled'
                WHEN e.lifecycle_phase IN ('terminal', 'completed', 'failed', 'expired', 'skipped') THEN coalesce(
                    CASE WHEN p.outcome IN ('success', 'failed', 'cancelled', 'expired', 'skipped') THEN p.outcome END,
                    CASE
                        WHEN e.public_state = 'completed' THEN 'success'
                        WHEN e.public_state IN ('failed', 'cancelled', 'expired', 'skipped') THEN e.public_state
                    END,
                    -- If neither the attempt nor the public state has the outcome, the view reads the fields of other
                    -- programs.
                    (
                        SELECT x.outcome
                        FROM ffx_execution AS x
                        WHERE
                            x.partition_key = e.partition_key
                            AND x.execution_id = e.execution_id
                        OFFSET 0
                    ),
                    'failed'
                )
                WHEN e.lifecycle_phase = 'active' THEN 'active'
                WHEN e.lifecycle_phase = 'suspended' OR e.public_state = 'resumable' THEN 'suspended'
                WHEN e.eligibility_state = 'blocked_by_dependencies' OR e.public_state = 'waiting_children' THEN 'waiting_children'
                WHEN e.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota') THEN 'rate_limited'
                WHEN e.eligibility_state = 'not_eligible_until_time' THEN 'delayed'
                ELSE 'waiting'
            END AS bucket
            OFFSET 0
        ) AS b
        WHERE
            e.partition_key = i.partition_key
            AND e.flow_id = i.flow_id
    ) AS m
    WHERE m.total > 0
),
derived AS (
    -- The counts with the state that follows from them, for flows and summaries that no other transaction holds.
    SELECT
        c.*,
        CASE
            WHEN c.completed + c.failed + c.cancelled + c.expired + c.skipped = c.total THEN
                CASE WHEN c.failed + c.cancelled + c.expired > 0 THEN 'failed' ELSE 'completed' END
            WHEN c.active > 0 THEN 'running'
            WHEN c.suspended + c.delayed + c.rate_limited + c.waiting_children > 0 THEN 'blocked'
            ELSE 'open'
        END AS flow_state
    FROM counted AS c
    CROSS JOIN LATERAL (
        SELECT true AS kept
        FROM ff_flow_core AS t
        WHERE
            t.partition_key = c.partition_key
            AND t.flow_id = c.flow_id
        FOR KEY SHARE SKIP LOCKED
    ) AS f
    LEFT JOIN LATERAL (
        SELECT true AS found
        FROM ff_flow_summary AS t
        WHERE
            t.partition_key = c.partition_key
            AND t.flow_id = c.flow_id
        LIMIT 1
    ) AS s ON true
    LEFT JOIN LATERAL (
        SELECT true AS taken
        FROM ff_flow_summary AS t
        WHERE
            t.partition_key = c.partition_key
            AND t.flow_id = c.flow_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS l ON true
    WHERE
        s.found IS NULL
        OR l.taken
)
INSERT INTO ff_flow_summary AS s (
    partition_key,
    flow_id,
    total_members,
    sampled_members,
    members_completed,
    members_failed,
    members_cancelled,
    members_expired,
    members_skipped,
    members_active,
    members_suspended,
    members_waiting,
    members_delayed,
    members_rate_limited,
    members_waiting_children,
    public_flow_state,
    last_summary_update_at
)
SELECT
    d.partition_key,
    d.flow_id,
    d.total,
    d.total::integer,
    d.completed,
    d.failed,
    d.cancelled,
    d.expired,
    d.skipped,
    d.active,
    d.suspended,
    d.waiting,
    d.delayed,
    d.rate_limited,
    d.waiting_children,
    d.flow_state,
    (SELECT now_ms FROM clock)
FROM derived AS d
ON CONFLICT (partition_key, flow_id) DO UPDATE SET
    total_members = excluded.total_members,
    sampled_members = excluded.sampled_members,
    members_completed = excluded.members_completed,
    members_failed = excluded.members_failed,
    members_cancelled = excluded.members_cancelled,
    members_expired = excluded.members_expired,
    members_skipped = excluded.members_skipped,
    members_active = excluded.members_active,
    members_suspended = excluded.members_suspended,
    members_waiting = excluded.members_waiting,
    members_delayed = excluded.members_delayed,
    members_rate_limited = excluded.members_rate_limited,
    members_waiting_children = excluded.members_waiting_children,
    public_flow_state = excluded.public_flow_state,
    last_summary_update_at = excluded.last_summary_update_at
WHERE
    s.last_summary_update_at <= excluded.last_summary_update_at
    AND (
        s.last_summary_update_at <= (
            SELECT coalesce(ffx_read_number(t.raw_fields, 'last_mutation_at_ms'), t.created_at_ms)
            FROM ff_flow_core AS t
            WHERE
                t.partition_key = excluded.partition_key
                AND t.flow_id = excluded.flow_id
            LIMIT 1
        )
        OR (
            s.total_members, s.members_completed, s.members_failed, s.members_cancelled, s.members_expired, s.members_skipped,
            s.members_active, s.members_suspended, s.members_waiting, s.members_delayed, s.members_rate_limited,
            s.members_waiting_children, s.public_flow_state
        ) IS DISTINCT FROM (
            excluded.total_members, excluded.members_completed, excluded.members_failed, excluded.members_cancelled,
            excluded.members_expired, excluded.members_skipped, excluded.members_active, excluded.members_suspended,
            excluded.members_waiting, excluded.members_delayed, excluded.members_rate_limited,
            excluded.members_waiting_children, excluded.public_flow_state
        )
    );
