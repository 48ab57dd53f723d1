-- name: TakeForeignMembers :many
-- TakeForeignMembers locks the given members of flows that wait for their first attempt, skipping rows another
-- transaction holds. The caller reads afterwards which members dependencies block.
--
-- Used by: schema.Adopt.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE). The flows are locked by the caller, exclusively.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
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
        AND t.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'eligible', 'blocked')
        AND t.ownership_state IN ('unowned', 'released')
        AND t.eligibility_state <> 'pending_claim'
        AND t.attempt_state NOT IN ('attempt_interrupted', 'pending_replay_attempt', 'pending_retry_attempt')
    FOR NO KEY UPDATE SKIP LOCKED
) AS e;

-- name: ReadInboundGroups :many
-- ReadInboundGroups returns the dependencies of members in numbers: how many edges lead to each, how many are staged
-- and not applied yet, and the current group row. No row: no edge leads to the member.
--
-- Used by: schema.Adopt.
-- Locks: L3 waits (group rows FOR UPDATE in array order, under the exclusive lock of the flow). The caller sorts by
-- (partition_key, execution_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id
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
        t.downstream_eid = i.execution_id
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

-- name: TakeForeign :many
-- TakeForeign locks executions another program created, or left half-done, and returns the facts that determine their
-- new state, including facts from their documents. Rows another transaction holds, or which have joined a flow since
-- the scan, are skipped. held (dependencies block the execution) and quota_partition come back unchanged. A missing
-- time is the least bigint, a missing text is empty. capabilities and budgets are arrays as text.
--
-- Used by: schema.Adopt.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@held::boolean[]) AS held,
        unnest(@quota_partitions::smallint[]) AS quota_partition
)
SELECT
    e.partition_key,
    e.execution_id,
    i.held::boolean AS held,
    i.quota_partition::smallint AS quota_partition,
    e.lifecycle_phase,
    e.ownership_state,
    e.eligibility_state,
    e.public_state,
    e.attempt_state,
    coalesce(e.blocking_reason, '')::text AS blocking_reason,
    coalesce(e.deadline_at_ms, -9223372036854775808)::bigint AS deadline_at_ms,
    coalesce(e.ffx_execution_deadline_ms, -9223372036854775808)::bigint AS execution_deadline_ms,
    coalesce(e.ffx_delay_until_ms, -9223372036854775808)::bigint AS delay_until_ms,
    coalesce(CASE
        WHEN e.blocking_reason = 'waiting_for_retry_backoff' THEN ffx_read_number(e.raw_fields, 'delay_until')
    END, -9223372036854775808)::bigint AS retry_at_ms,
    coalesce(CASE WHEN e.policy IS NOT NULL THEN ffx_read_number(e.policy, 'delay_until') END, -9223372036854775808)::bigint AS policy_delay_ms,
    coalesce(CASE
        WHEN jsonb_typeof(e.policy -> 'timeout_policy') = 'object' THEN nullif(least(
            e.created_at_ms::numeric + nullif(ffx_read_number(e.policy -> 'timeout_policy', 'execution_deadline_ms'), 0),
            9223372036854775807
        ), 9223372036854775807)::bigint
    END, -9223372036854775808)::bigint AS policy_deadline_ms,
    coalesce(e.ffx_admitted, false)::boolean AS admitted,
    (CASE
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
    END)::text AS capabilities,
    coalesce(coalesce(e.ffx_budget_ids, a.budgets)::text, '')::text AS budgets,
    coalesce(a.bad_budget, '')::text AS bad_budget,
    coalesce(e.ffx_quota_policy_id, a.quota) AS quota_policy_id,
    coalesce(a.bad_quota, '')::text AS bad_quota
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.lifecycle_phase,
        t.ownership_state,
        t.eligibility_state,
        t.public_state,
        t.attempt_state,
        t.blocking_reason,
        t.created_at_ms,
        t.deadline_at_ms,
        t.required_capabilities,
        t.policy,
        t.raw_fields,
        t.ffx_delay_until_ms,
        t.ffx_execution_deadline_ms,
        t.ffx_budget_ids,
        t.ffx_quota_policy_id,
        t.ffx_admitted
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.flow_id IS NOT DISTINCT FROM i.flow_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS e
CROSS JOIN LATERAL (
    SELECT
        array_agg(DISTINCT ffx_read_uuid(b.budget) ORDER BY ffx_read_uuid(b.budget))
            FILTER (WHERE ffx_read_uuid(b.budget) IS NOT NULL) AS budgets,
        min(b.budget) FILTER (WHERE b.budget <> '' AND ffx_read_uuid(b.budget) IS NULL) AS bad_budget,
        ffx_read_uuid(trim(e.raw_fields ->> 'quota_policy_id')) AS quota,
        CASE
            WHEN ffx_read_uuid(trim(e.raw_fields ->> 'quota_policy_id')) IS NULL
                THEN nullif(trim(e.raw_fields ->> 'quota_policy_id'), '')
        END AS bad_quota
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
) AS a;

-- name: AdoptExecutions :many
-- AdoptExecutions converts executions to the form of the library by filling the columns and, if an execution moves,
-- writing the state. The values follow from the result of TakeForeign, in the same forms. gated: the execution waits
-- for budgets or the quota. bad_attachments: a text in the place of the id of a budget or quota, empty if all are ids.
-- Returns the changed ones. Canonical rows stay unchanged.
--
-- Used by: schema.Adopt.
-- Locks: L1 held.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@moves::boolean[]) AS moves,
        unnest(@gated::boolean[]) AS gated,
        unnest(@eligibility_states::text[]) AS eligibility_state,
        unnest(@public_states::text[]) AS public_state,
        unnest(@attempt_states::text[]) AS attempt_state,
        nullif(unnest(@reasons::text[]), '') AS reason,
        nullif(unnest(@deadlines_at_ms::bigint[]), -9223372036854775808) AS deadline_at_ms,
        unnest(@execution_deadlines_ms::bigint[]) AS execution_deadline_ms,
        nullif(unnest(@delays_until_ms::bigint[]), -9223372036854775808) AS delay_until_ms,
        unnest(@required_capabilities::text[])::text[] AS capabilities,
        nullif(unnest(@budgets::text[]), '')::uuid[] AS budgets,
        unnest(@quota_policy_ids::uuid[]) AS quota,
        unnest(@quota_partitions::smallint[]) AS quota_partition,
        nullif(unnest(@bad_attachments::text[]), '') AS bad_attachment
)
UPDATE ff_exec_core AS e
SET
    lifecycle_phase = CASE WHEN i.moves THEN 'runnable' ELSE e.lifecycle_phase END,
    ownership_state = CASE WHEN i.moves THEN 'unowned' ELSE e.ownership_state END,
    eligibility_state = CASE WHEN i.moves THEN i.eligibility_state ELSE e.eligibility_state END,
    public_state = CASE WHEN i.moves THEN i.public_state ELSE e.public_state END,
    attempt_state = CASE WHEN i.moves THEN i.attempt_state ELSE e.attempt_state END,
    blocking_reason = CASE WHEN i.moves THEN i.reason ELSE e.blocking_reason END,
    priority = least(greatest(e.priority, 0), 9000),
    deadline_at_ms = i.deadline_at_ms,
    required_capabilities = i.capabilities,
    raw_fields = CASE
        WHEN i.moves AND i.gated AND i.bad_attachment IS NOT NULL
            THEN e.raw_fields || jsonb_build_object('blocking_detail', 'not an id: ' || i.bad_attachment)
        ELSE e.raw_fields
    END,
    ffx_retry_count = coalesce(e.ffx_retry_count, least(ffx_read_number(e.raw_fields, 'retry_count'), 2147483647), 0)::integer,
    ffx_attempt_count = coalesce(
        e.ffx_attempt_count, least(ffx_read_number(e.raw_fields, 'total_attempt_count'), 2147483647), 0
    )::integer,
    ffx_lease_epoch = coalesce(e.ffx_lease_epoch, 0),
    ffx_execution_deadline_ms = i.execution_deadline_ms,
    ffx_delay_until_ms = i.delay_until_ms,
    ffx_budget_ids = i.budgets,
    ffx_quota_policy_id = i.quota,
    ffx_quota_partition = CASE WHEN i.quota IS NOT NULL THEN coalesce(e.ffx_quota_partition, i.quota_partition) END,
    ffx_limit_ids = coalesce(e.ffx_limit_ids, CASE WHEN i.quota IS NOT NULL THEN ARRAY[i.quota] END),
    ffx_gate_id = CASE WHEN i.gated THEN coalesce(e.ffx_gate_id, i.budgets[1], e.ffx_limit_ids[1], i.quota) END,
    ffx_last_mutation_at_ms = CASE WHEN i.moves THEN @now_ms::bigint ELSE e.ffx_last_mutation_at_ms END
FROM input AS i
WHERE
    e.partition_key = ANY (ARRAY[i.partition_key])
    AND e.execution_id = i.execution_id
    AND (
        i.moves
        OR e.ffx_retry_count IS NULL
        OR (
            e.deadline_at_ms, e.required_capabilities, e.ffx_execution_deadline_ms, e.ffx_delay_until_ms, e.ffx_budget_ids,
            e.ffx_quota_policy_id, e.ffx_gate_id
        ) IS DISTINCT FROM (
            i.deadline_at_ms, i.capabilities, i.execution_deadline_ms, i.delay_until_ms, i.budgets, i.quota,
            CASE WHEN i.gated THEN coalesce(e.ffx_gate_id, i.budgets[1], e.ffx_limit_ids[1], i.quota) END
        )
    )
RETURNING
    e.partition_key,
    e.execution_id,
    e.lane_id,
    (i.moves AND e.lifecycle_phase = 'runnable' AND e.eligibility_state = 'eligible_now')::boolean AS claimable;
