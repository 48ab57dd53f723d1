-- name: ScanForeign :many
-- ScanForeign finds executions that another program created and that are not adopted yet, oldest first, after a
-- position.
--
-- Used by: engine.Adopt.
-- Locks: none. Spans partitions.
SELECT
    e.created_at_ms,
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.lane_id,
    coalesce(e.raw_fields ->> 'quota_policy_id', '')::text AS quota_policy_id,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM ff_exec_core AS e
WHERE
    e.ffx_retry_count IS NULL
    AND (e.created_at_ms, e.partition_key, e.execution_id)
    > (@after_created_at_ms::bigint, @after_partition_key::smallint, @after_execution_id::uuid)
ORDER BY
    e.created_at_ms,
    e.partition_key,
    e.execution_id
LIMIT @page_size::integer;

-- name: TakeForeignMembers :many
-- TakeForeignMembers locks those of the given members of flows that wait for their first attempt, skipping rows that
-- another transaction holds. The caller reads afterwards whether their dependencies block them.
--
-- Used by: engine.Adopt, engine.RepairQueue.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE). The flows are locked by the caller, exclusively.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.started_at_ms IS NULL
        AND (t.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'eligible', 'blocked')) IS TRUE
        AND (t.ownership_state IN ('unowned', 'released')) IS TRUE
        AND (t.eligibility_state <> 'pending_claim') IS TRUE
        AND (t.attempt_state NOT IN ('attempt_interrupted', 'pending_replay_attempt', 'pending_retry_attempt')) IS TRUE
    FOR NO KEY UPDATE SKIP LOCKED
) AS e;

-- name: ReadInboundGroups :many
-- ReadInboundGroups returns the dependencies of members in numbers: how many edges lead to each, how many of these
-- are staged and not applied yet, and the current group row. No row: no edge leads to the member.
--
-- Used by: engine.Adopt, engine.RepairQueue.
-- Locks: L3 waits (group rows FOR UPDATE in array order, under the exclusive lock of the flow). The caller sorts by
-- (partition_key, execution_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    i.partition_key::smallint AS partition_key,
    CAST(i.flow_id AS uuid) AS flow_id,
    CAST(i.execution_id AS uuid) AS execution_id,
    d.edges::bigint AS edges,
    d.staged::bigint AS staged,
    (g.policy IS NOT NULL)::boolean AS has_group,
    coalesce(g.policy, '{}')::jsonb AS policy,
    coalesce(g.success_count, 0)::integer AS success_count,
    coalesce(g.fail_count, 0)::integer AS fail_count,
    coalesce(g.skip_count, 0)::integer AS skip_count,
    coalesce(g.running_count, 0)::integer AS running_count
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        count(*) AS edges,
        count(*) FILTER (WHERE t.policy -> 'applied_at_ms' = 'null'::jsonb) AS staged
    FROM ff_edge AS t
    WHERE
        t.downstream_eid = ANY (ARRAY[i.execution_id])
        AND (t.partition_key = i.partition_key OR t.partition_key IS NULL)
        AND (t.flow_id = i.flow_id) IS TRUE
) AS d
LEFT JOIN LATERAL (
    SELECT
        t.policy,
        t.success_count,
        t.fail_count,
        t.skip_count,
        t.running_count
    FROM ff_edge_group AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
        AND t.downstream_eid = i.execution_id
    FOR UPDATE
) AS g ON true
WHERE d.edges > 0;

-- name: AdoptExecutions :many
-- AdoptExecutions converts executions that another program created, or left half-done, to the form of this library.
-- It fills the columns, and writes the state of executions that wait without a lease or a grant. held: dependencies
-- block the execution. Returns the changed ones. Canonical rows stay unchanged, and so do rows that another
-- transaction holds or that have joined a flow since they were found.
--
-- Used by: engine.Adopt, engine.RepairQueue.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, then the UPDATE).
WITH input AS (
    -- The executions that were found.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@held::boolean[]) AS held,
        unnest(@quota_partitions::smallint[]) AS quota_partition
    LIMIT cardinality(@execution_ids::uuid[])
),
found AS (
    -- Those not locked elsewhere, with the facts from their documents.
    SELECT
        e.*,
        i.held,
        i.quota_partition AS given_quota_partition,
        e.lifecycle_phase IN ('terminal', 'cancelled') AS ended,
        (
            e.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'eligible', 'blocked')
            AND e.ownership_state IN ('unowned', 'released')
            AND e.eligibility_state <> 'pending_claim'
        ) AS waits,
        (
            e.lifecycle_phase IN ('submitted', 'pending', 'eligible', 'blocked')
            OR e.attempt_state IN ('pending', 'pending_claim', 'initial')
        ) AS created,
        e.eligibility_state = 'not_eligible_until_time' AS delayed,
        (
            e.ffx_delay_until_ms IS NOT NULL
            AND e.deadline_at_ms IS NOT DISTINCT FROM least(
                e.ffx_delay_until_ms,
                CASE WHEN e.ffx_execution_deadline_ms > 0 THEN e.ffx_execution_deadline_ms END
            )
        ) AS own_delay,
        CASE
            WHEN e.blocking_reason = 'waiting_for_retry_backoff' THEN ffx_read_number(e.raw_fields, 'delay_until')
        END AS retry_at_ms,
        CASE WHEN e.policy IS NOT NULL THEN ffx_read_number(e.policy, 'delay_until') END AS policy_delay_ms,
        CASE
            WHEN jsonb_typeof(e.policy -> 'timeout_policy') = 'object' THEN nullif(least(
                e.created_at_ms::numeric + nullif(ffx_read_number(e.policy -> 'timeout_policy', 'execution_deadline_ms'), 0),
                9223372036854775807
            ), 9223372036854775807)::bigint
        END AS policy_deadline_ms,
        CASE
            WHEN array_remove(e.required_capabilities, '') <> '{}' OR e.policy IS NULL
                THEN array_remove(e.required_capabilities, '')
            ELSE coalesce((
                SELECT array_agg(DISTINCT c.token ORDER BY c.token)
                FROM jsonb_array_elements_text(CASE jsonb_typeof(e.policy #> '{routing_requirements,required_capabilities}')
                    WHEN 'array' THEN e.policy #> '{routing_requirements,required_capabilities}'
                    ELSE '[]'::jsonb
                END) AS c (token)
                WHERE c.token <> ''
            ), '{}')
        END AS capabilities,
        CASE
            WHEN e.ffx_budget_ids IS NOT NULL THEN e.ffx_budget_ids
            WHEN e.policy ? 'budget_ids' OR e.raw_fields ? 'budget_ids' THEN (
                SELECT array_agg(DISTINCT ffx_read_uuid(b.budget) ORDER BY ffx_read_uuid(b.budget))
                FROM (
                    SELECT trim(p.budget) AS budget
                    FROM jsonb_array_elements_text(CASE jsonb_typeof(e.policy -> 'budget_ids')
                        WHEN 'array' THEN e.policy -> 'budget_ids'
                        ELSE '[]'::jsonb
                    END) AS p (budget)
                    UNION
                    SELECT trim(r.budget)
                    FROM unnest(string_to_array(e.raw_fields ->> 'budget_ids', ',')) AS r (budget)
                ) AS b
                WHERE ffx_read_uuid(b.budget) IS NOT NULL
            )
        END AS budgets,
        CASE
            WHEN e.policy ? 'budget_ids' OR e.raw_fields ? 'budget_ids' THEN (
                SELECT min(b.budget)
                FROM (
                    SELECT trim(p.budget) AS budget
                    FROM jsonb_array_elements_text(CASE jsonb_typeof(e.policy -> 'budget_ids')
                        WHEN 'array' THEN e.policy -> 'budget_ids'
                        ELSE '[]'::jsonb
                    END) AS p (budget)
                    UNION
                    SELECT trim(r.budget)
                    FROM unnest(string_to_array(e.raw_fields ->> 'budget_ids', ',')) AS r (budget)
                ) AS b
                WHERE
                    b.budget <> ''
                    AND ffx_read_uuid(b.budget) IS NULL
            )
        END AS bad_budget,
        coalesce(e.ffx_quota_policy_id, ffx_read_uuid(trim(e.raw_fields ->> 'quota_policy_id'))) AS quota,
        CASE
            WHEN ffx_read_uuid(trim(e.raw_fields ->> 'quota_policy_id')) IS NULL
                THEN nullif(trim(e.raw_fields ->> 'quota_policy_id'), '')
        END AS bad_quota
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            t.lane_id,
            t.lifecycle_phase,
            t.ownership_state,
            t.eligibility_state,
            t.public_state,
            t.attempt_state,
            t.blocking_reason,
            t.priority,
            t.created_at_ms,
            t.deadline_at_ms,
            t.required_capabilities,
            t.policy,
            t.raw_fields,
            t.ffx_retry_count,
            t.ffx_attempt_count,
            t.ffx_lease_epoch,
            t.ffx_last_mutation_at_ms,
            t.ffx_delay_until_ms,
            CASE
                WHEN t.ffx_execution_deadline_ms >= 0 OR t.lifecycle_phase IN ('terminal', 'cancelled') THEN t.ffx_execution_deadline_ms
            END AS ffx_execution_deadline_ms,
            t.ffx_budget_ids,
            t.ffx_quota_policy_id,
            t.ffx_quota_partition,
            t.ffx_gate_id,
            t.ffx_admitted
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND (t.flow_id IS NOT DISTINCT FROM i.flow_id) IS TRUE
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
),
decided AS (
    -- The condition that each waits for, and until when.
    SELECT
        f.*,
        CASE
            WHEN f.ffx_execution_deadline_ms IS NOT NULL THEN f.ffx_execution_deadline_ms
            WHEN f.ended THEN - abs(coalesce(f.deadline_at_ms, 0))
            WHEN f.delayed AND f.retry_at_ms IS NULL THEN coalesce(f.policy_deadline_ms, 0)
            ELSE coalesce(nullif(f.deadline_at_ms, 0), f.policy_deadline_ms, 0)
        END AS new_deadline_ms,
        CASE
            WHEN NOT f.waits OR f.eligibility_state = 'blocked_by_dependencies' AND NOT f.created THEN f.ffx_delay_until_ms
            WHEN f.delayed AND f.own_delay THEN f.ffx_delay_until_ms
            WHEN f.delayed THEN coalesce(f.retry_at_ms, f.deadline_at_ms, @now_ms::bigint)
            WHEN f.created AND f.policy_delay_ms > @now_ms::bigint THEN f.policy_delay_ms
        END AS wake_up_ms,
        CASE
            WHEN NOT f.waits OR f.delayed THEN f.eligibility_state
            WHEN f.eligibility_state IN (
                'blocked_by_budget', 'blocked_by_quota', 'blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator'
            ) THEN f.eligibility_state
            WHEN f.held AND (f.created OR f.eligibility_state = 'eligible_now') THEN 'blocked_by_dependencies'
            WHEN NOT f.created AND f.eligibility_state <> 'eligible_now' THEN f.eligibility_state
            WHEN f.created AND f.policy_delay_ms > @now_ms::bigint THEN 'not_eligible_until_time'
            WHEN f.ffx_admitted THEN 'eligible_now'
            WHEN f.budgets IS NOT NULL OR f.bad_budget IS NOT NULL THEN 'blocked_by_budget'
            WHEN f.quota IS NOT NULL OR f.bad_quota IS NOT NULL THEN 'blocked_by_quota'
            ELSE 'eligible_now'
        END AS new_eligibility
    FROM found AS f
),
stated AS (
    -- The same with a value for every column of the state.
    SELECT
        d.partition_key,
        d.execution_id,
        d.waits,
        d.created,
        d.eligibility_state,
        d.public_state,
        d.new_eligibility,
        CASE d.new_eligibility
            WHEN 'eligible_now' THEN CASE WHEN d.public_state = 'resumable' THEN 'resumable' ELSE 'waiting' END
            WHEN 'not_eligible_until_time' THEN 'delayed'
            WHEN 'blocked_by_dependencies' THEN 'waiting_children'
            WHEN 'blocked_by_budget' THEN 'rate_limited'
            WHEN 'blocked_by_quota' THEN 'rate_limited'
            ELSE 'waiting'
        END AS new_public_state,
        coalesce(
            CASE
                WHEN d.new_eligibility = d.eligibility_state AND d.new_eligibility <> 'eligible_now'
                    THEN nullif(nullif(d.blocking_reason, ''), 'none')
            END,
            CASE d.new_eligibility
                WHEN 'eligible_now' THEN 'waiting_for_worker'
                WHEN 'not_eligible_until_time' THEN 'waiting_for_delay'
                WHEN 'blocked_by_dependencies' THEN 'waiting_for_children'
                WHEN 'blocked_by_budget' THEN 'waiting_for_budget'
                WHEN 'blocked_by_quota' THEN 'waiting_for_quota'
                WHEN 'blocked_by_route' THEN 'waiting_for_capable_worker'
                WHEN 'blocked_by_lane_state' THEN 'paused_by_policy'
                WHEN 'blocked_by_operator' THEN 'paused_by_operator'
            END
        ) AS new_reason,
        CASE
            WHEN d.attempt_state IN ('none', '', 'pending', 'pending_claim', 'initial') THEN 'pending_first_attempt'
            ELSE d.attempt_state
        END AS new_attempt_state,
        d.new_deadline_ms,
        d.wake_up_ms AS new_wake_up_ms,
        CASE
            WHEN d.ended THEN d.deadline_at_ms
            WHEN d.waits AND d.new_eligibility = 'not_eligible_until_time' THEN least(d.wake_up_ms, nullif(d.new_deadline_ms, 0))
            ELSE nullif(d.new_deadline_ms, 0)
        END AS new_deadline_at_ms,
        d.capabilities,
        d.budgets,
        d.quota,
        CASE WHEN d.quota IS NOT NULL THEN coalesce(d.ffx_quota_partition, d.given_quota_partition) END AS quota_partition,
        CASE
            WHEN d.waits AND d.new_eligibility IN ('blocked_by_budget', 'blocked_by_quota')
                THEN coalesce(d.ffx_gate_id, d.budgets[1], d.quota)
        END AS gate,
        CASE WHEN NOT d.ended THEN coalesce(d.bad_budget, d.bad_quota) END AS bad_attachment
    FROM decided AS d
),
moving AS (
    -- Whether the state of each changes.
    SELECT
        t.*,
        t.waits AND (
            t.created
            OR t.new_eligibility <> t.eligibility_state
            OR t.new_public_state <> t.public_state
        ) AS moves
    FROM stated AS t
)
UPDATE ff_exec_core AS e
SET
    lifecycle_phase = CASE WHEN s.moves THEN 'runnable' ELSE e.lifecycle_phase END,
    ownership_state = CASE WHEN s.moves THEN 'unowned' ELSE e.ownership_state END,
    eligibility_state = CASE WHEN s.moves THEN s.new_eligibility ELSE e.eligibility_state END,
    public_state = CASE WHEN s.moves THEN s.new_public_state ELSE e.public_state END,
    attempt_state = CASE WHEN s.moves THEN s.new_attempt_state ELSE e.attempt_state END,
    blocking_reason = CASE WHEN s.moves THEN s.new_reason ELSE e.blocking_reason END,
    priority = least(greatest(e.priority, 0), 9000),
    deadline_at_ms = s.new_deadline_at_ms,
    required_capabilities = s.capabilities,
    raw_fields = CASE
        WHEN s.moves AND s.bad_attachment IS NOT NULL AND s.new_eligibility IN ('blocked_by_budget', 'blocked_by_quota')
            THEN e.raw_fields || jsonb_build_object('blocking_detail', 'not an id: ' || s.bad_attachment)
        ELSE e.raw_fields
    END,
    ffx_retry_count = coalesce(e.ffx_retry_count, least(ffx_read_number(e.raw_fields, 'retry_count'), 2147483647), 0)::integer,
    ffx_attempt_count = coalesce(
        e.ffx_attempt_count, least(ffx_read_number(e.raw_fields, 'total_attempt_count'), 2147483647), 0
    )::integer,
    ffx_lease_epoch = coalesce(e.ffx_lease_epoch, 0),
    ffx_execution_deadline_ms = s.new_deadline_ms,
    ffx_delay_until_ms = s.new_wake_up_ms,
    ffx_budget_ids = s.budgets,
    ffx_quota_policy_id = s.quota,
    ffx_quota_partition = s.quota_partition,
    ffx_gate_id = s.gate,
    ffx_last_mutation_at_ms = CASE WHEN s.moves THEN @now_ms::bigint ELSE e.ffx_last_mutation_at_ms END
FROM moving AS s
WHERE
    e.partition_key = ANY (ARRAY[s.partition_key])
    AND e.execution_id = s.execution_id
    AND (
        s.moves
        OR e.ffx_retry_count IS NULL
        OR (
            e.deadline_at_ms, e.required_capabilities, e.ffx_execution_deadline_ms, e.ffx_delay_until_ms, e.ffx_budget_ids,
            e.ffx_quota_policy_id, e.ffx_gate_id
        ) IS DISTINCT FROM (
            s.new_deadline_at_ms, s.capabilities, s.new_deadline_ms, s.new_wake_up_ms, s.budgets, s.quota, s.gate
        )
    )
RETURNING
    e.partition_key,
    e.execution_id,
    e.lane_id,
    (s.moves AND e.lifecycle_phase = 'runnable' AND e.eligibility_state = 'eligible_now')::boolean AS claimable;
