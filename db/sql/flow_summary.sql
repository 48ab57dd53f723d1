-- name: ScanFlowSummaries :many
-- ScanFlowSummaries returns the first page_size flows after a place in the order of the primary key. Returns how many
-- members each has ever had, and whether the summary is settled: the summary says that all members have ended, and
-- since then the flow has had no new members and no replay.
--
-- Used by: upkeep.SummariseFlows.
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

-- name: ReadMemberCounts :many
-- ReadMemberCounts counts the members of flows by state, each in one bucket, and returns the resulting state of the
-- flow. now_ms is the time of the counts, which include everything committed by then. A flow without members has no
-- row.
--
-- Used by: upkeep.SummariseFlows.
-- Locks: none.
WITH clock AS MATERIALIZED (
    -- The time of the counts: the statement's start, which is before the snapshot.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    -- The flows.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
SELECT
    i.partition_key::smallint AS partition_key,
    i.flow_id::uuid AS flow_id,
    m.*,
    (CASE
        WHEN m.completed + m.failed + m.cancelled + m.expired + m.skipped = m.total THEN
            CASE WHEN m.failed + m.cancelled + m.expired > 0 THEN 'failed' ELSE 'completed' END
        WHEN m.active > 0 THEN 'running'
        WHEN m.suspended + m.delayed + m.rate_limited + m.waiting_children > 0 THEN 'blocked'
        ELSE 'open'
    END)::text AS flow_state,
    (SELECT now_ms FROM clock)::bigint AS now_ms
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
ORDER BY
    i.partition_key,
    i.flow_id;

-- name: SummariseFlows :execrows
-- SummariseFlows writes counts of members, taken at now_ms, into the summaries of flows. A deleted flow gets none. An
-- equal summary is written only if the flow has changed since; a newer one, or one another transaction holds, stays
-- unchanged. Returns the number of written summaries.
--
-- The counts are of an earlier statement, which holds nothing meanwhile. If two processes count a flow, and the first
-- to count writes last, the later time in the summary keeps it from writing: the time is compared on the locked row or,
-- for a row inserted since, on the row of the conflict. If the flow has changed between the counts and the write, the
-- summary is older than the change, so the next round counts again.
--
-- Used by: upkeep.SummariseFlows.
-- Locks: L0 skips (flow rows FOR KEY SHARE, which conflicts only with deleting the flow, and rows of summaries FOR NO
-- KEY UPDATE, then the INSERT). The caller sorts by (partition_key, flow_id).
INSERT INTO ff_flow_summary AS s (
    partition_key, flow_id, total_members, sampled_members, members_completed, members_failed,
    members_cancelled, members_expired, members_skipped, members_active, members_suspended,
    members_waiting, members_delayed, members_rate_limited, members_waiting_children,
    public_flow_state, last_summary_update_at
)
SELECT
    i.partition_key,
    i.flow_id,
    i.total_members,
    i.total_members::integer,
    i.members_completed,
    i.members_failed,
    i.members_cancelled,
    i.members_expired,
    i.members_skipped,
    i.members_active,
    i.members_suspended,
    i.members_waiting,
    i.members_delayed,
    i.members_rate_limited,
    i.members_waiting_children,
    i.public_flow_state,
    i.now_ms
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@total::bigint[]) AS total_members,
        unnest(@completed::integer[]) AS members_completed,
        unnest(@failed::integer[]) AS members_failed,
        unnest(@cancelled::integer[]) AS members_cancelled,
        unnest(@expired::integer[]) AS members_expired,
        unnest(@skipped::integer[]) AS members_skipped,
        unnest(@active::integer[]) AS members_active,
        unnest(@suspended::integer[]) AS members_suspended,
        unnest(@waiting::integer[]) AS members_waiting,
        unnest(@delayed::integer[]) AS members_delayed,
        unnest(@rate_limited::integer[]) AS members_rate_limited,
        unnest(@waiting_children::integer[]) AS members_waiting_children,
        unnest(@flow_states::text[]) AS public_flow_state,
        @now_ms::bigint AS now_ms
) AS i
CROSS JOIN LATERAL (
    SELECT coalesce(ffx_read_number(t.raw_fields, 'last_mutation_at_ms'), t.created_at_ms) AS changed_at_ms
    FROM ff_flow_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
    FOR KEY SHARE SKIP LOCKED
) AS f
LEFT JOIN LATERAL (
    SELECT true AS found
    FROM ff_flow_summary AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
    LIMIT 1
) AS o ON true
LEFT JOIN LATERAL (
    SELECT
        t.last_summary_update_at <= i.now_ms
        AND (
            t.last_summary_update_at <= f.changed_at_ms
            OR (
                t.total_members, t.members_completed, t.members_failed, t.members_cancelled, t.members_expired,
                t.members_skipped, t.members_active, t.members_suspended, t.members_waiting, t.members_delayed,
                t.members_rate_limited, t.members_waiting_children, t.public_flow_state
            ) IS DISTINCT FROM (
                i.total_members, i.members_completed, i.members_failed, i.members_cancelled, i.members_expired,
                i.members_skipped, i.members_active, i.members_suspended, i.members_waiting, i.members_delayed,
                i.members_rate_limited, i.members_waiting_children, i.public_flow_state
            )
        ) AS due
    FROM ff_flow_summary AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS l ON true
WHERE
    o.found IS NULL
    OR l.due
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
WHERE s.last_summary_update_at <= excluded.last_summary_update_at;
