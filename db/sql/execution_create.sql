-- name: InsertAlike :exec
-- InsertAlike creates executions that are claimable at once and belong to no flow, with their queue entries. The
-- executions differ only in partition, id, priority, payload and document. All documents begin with raw_fields; each
-- continues with own_fields, which are empty if all documents are the same. The closing brackets are left out. SQLSTATE
-- 23505 (an id or an entry exists already) keeps nothing; the caller then uses InsertExecutions.
--
-- Passages: alike_shared, created_columns, alike_made, alike_queued.
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: L1 waits (for a concurrent insert of the same id); queue new.
WITH shared AS MATERIALIZED (
    -- The shared values, rendered once. From here on the queue's trigger is switched off: see the trigger in the schema.
    SELECT
        c.created_at_ms,
        string_to_array(@required_capabilities::text, ',') AS required_capabilities,
        nullif(sqlc.arg(policy)::text, '')::jsonb AS policy,
        CASE WHEN cardinality(@own_fields::text[]) = 0 THEN (sqlc.arg(raw_fields)::text || c.last_field)::jsonb END AS raw_fields,
        c.last_field,
        set_config('ffx.own_entries', pg_current_xact_id()::text, true) AS own_entries
    FROM (
        SELECT
            n.created_at_ms,
            ',"last_mutation_at":"' || n.created_at_ms || '"}' AS last_field
        FROM (
            SELECT coalesce(nullif(sqlc.arg(created_at_ms)::bigint, 0), ffx_now_ms(sqlc.narg(now_ms))) AS created_at_ms
            OFFSET 0
        ) AS n
    ) AS c
),
input AS (
    -- The values of each execution.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@priorities::integer[]) AS priority,
        unnest(@payloads::bytea[]) AS payload,
        unnest(@own_fields::text[]) AS own_fields
),
made AS (
    -- The rows.
    INSERT INTO ff_exec_core (
        -- The columns of a new execution.
        partition_key, execution_id, flow_id, lane_id, required_capabilities, attempt_index,
        lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
        blocking_reason, priority, created_at_ms, deadline_at_ms, payload, policy, raw_fields,
        ffx_namespace, ffx_instance_tag, ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count,
        ffx_lease_epoch, ffx_delay_until_ms, ffx_execution_deadline_ms, ffx_budget_ids,
        ffx_quota_policy_id, ffx_quota_partition, ffx_limit_ids, ffx_limit_units, ffx_gate_id,
        ffx_unique_key, ffx_admitted, ffx_created_at_ms
    )
    -- Alike executions. Reads shared, and their own values from input. Fair ones have a place and a creation time.
    SELECT
        i.partition_key,
        i.execution_id,
        NULL,
        sqlc.arg(lane_id)::text,
        s.required_capabilities,
        0,
        'runnable',
        'unowned',
        'eligible_now',
        'waiting',
        'pending_first_attempt',
        'waiting_for_worker',
        i.priority,
        s.created_at_ms,
        NULL,
        i.payload,
        s.policy,
        d.document,
        d.document ->> 'namespace',
        d.document -> 'tags' ->> 'cairn.instance_id',
        s.created_at_ms,
        0,
        0,
        0,
        NULL,
        0,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL
    FROM input AS i
    CROSS JOIN shared AS s
    CROSS JOIN LATERAL (
        SELECT coalesce(s.raw_fields, (sqlc.arg(raw_fields)::text || i.own_fields || s.last_field)::jsonb) AS document
        OFFSET 0
    ) AS d
    RETURNING
        partition_key,
        execution_id,
        required_capabilities,
        priority,
        created_at_ms
),
queued AS (
    -- The queue entries of alike executions. Reads made.
    INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
    SELECT
        sqlc.arg(lane_id)::text,
        - m.priority::bigint,
        m.created_at_ms,
        m.execution_id,
        m.partition_key,
        m.required_capabilities,
        sqlc.arg(kind)::text
    FROM made AS m
)
SELECT
    -- Counted before the trigger is switched on again.
    count(*) AS created,
    set_config('ffx.own_entries', '', true) AS own_entries
FROM made;

-- name: InsertAlikeFair :exec
-- InsertAlikeFair creates executions as InsertAlike does, each at a separate place.
--
-- Passages: alike_shared, created_columns, alike_made, alike_queued.
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: L1 waits (for a concurrent insert of the same id); queue new.
WITH shared AS MATERIALIZED (
    -- The shared values, rendered once. From here on the queue's trigger is switched off: see the trigger in the schema.
    SELECT
        c.created_at_ms,
        string_to_array(@required_capabilities::text, ',') AS required_capabilities,
        nullif(sqlc.arg(policy)::text, '')::jsonb AS policy,
        CASE WHEN cardinality(@own_fields::text[]) = 0 THEN (sqlc.arg(raw_fields)::text || c.last_field)::jsonb END AS raw_fields,
        c.last_field,
        set_config('ffx.own_entries', pg_current_xact_id()::text, true) AS own_entries
    FROM (
        SELECT
            n.created_at_ms,
            ',"last_mutation_at":"' || n.created_at_ms || '"}' AS last_field
        FROM (
            SELECT coalesce(nullif(sqlc.arg(created_at_ms)::bigint, 0), ffx_now_ms(sqlc.narg(now_ms))) AS created_at_ms
            OFFSET 0
        ) AS n
    ) AS c
),
input AS (
    -- The values of each execution.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@priorities::integer[]) AS priority,
        unnest(@payloads::bytea[]) AS payload,
        unnest(@own_fields::text[]) AS own_fields,
        unnest(@places_ms::bigint[]) AS place_ms
),
made AS (
    -- The rows.
    INSERT INTO ff_exec_core (
        -- The columns of a new execution.
        partition_key, execution_id, flow_id, lane_id, required_capabilities, attempt_index,
        lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
        blocking_reason, priority, created_at_ms, deadline_at_ms, payload, policy, raw_fields,
        ffx_namespace, ffx_instance_tag, ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count,
        ffx_lease_epoch, ffx_delay_until_ms, ffx_execution_deadline_ms, ffx_budget_ids,
        ffx_quota_policy_id, ffx_quota_partition, ffx_limit_ids, ffx_limit_units, ffx_gate_id,
        ffx_unique_key, ffx_admitted, ffx_created_at_ms
    )
    -- Alike executions. Reads shared, and their own values from input. Fair ones have a place and a creation time.
    SELECT
        i.partition_key,
        i.execution_id,
        NULL,
        sqlc.arg(lane_id)::text,
        s.required_capabilities,
        0,
        'runnable',
        'unowned',
        'eligible_now',
        'waiting',
        'pending_first_attempt',
        'waiting_for_worker',
        i.priority,
        i.place_ms,
        NULL,
        i.payload,
        s.policy,
        d.document,
        d.document ->> 'namespace',
        d.document -> 'tags' ->> 'cairn.instance_id',
        s.created_at_ms,
        0,
        0,
        0,
        NULL,
        0,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
        s.created_at_ms
    FROM input AS i
    CROSS JOIN shared AS s
    CROSS JOIN LATERAL (
        SELECT coalesce(s.raw_fields, (sqlc.arg(raw_fields)::text || i.own_fields || s.last_field)::jsonb) AS document
        OFFSET 0
    ) AS d
    RETURNING
        partition_key,
        execution_id,
        required_capabilities,
        priority,
        created_at_ms
),
queued AS (
    -- The queue entries of alike executions. Reads made.
    INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
    SELECT
        sqlc.arg(lane_id)::text,
        - m.priority::bigint,
        m.created_at_ms,
        m.execution_id,
        m.partition_key,
        m.required_capabilities,
        sqlc.arg(kind)::text
    FROM made AS m
)
SELECT
    -- Counted before the trigger is switched on again.
    count(*) AS created,
    set_config('ffx.own_entries', '', true) AS own_entries
FROM made;

-- name: InsertAlikeAdmitted :exec
-- InsertAlikeAdmitted creates executions as InsertAlike does, each with limits that admit the execution from the
-- beginning. The caller has locked the limits, and stores the admissions.
--
-- Passages: alike_shared, created_columns, alike_made, alike_queued.
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: gates held; L1 waits (for a concurrent insert of the same id); queue new.
WITH shared AS MATERIALIZED (
    -- The shared values, rendered once. From here on the queue's trigger is switched off: see the trigger in the schema.
    SELECT
        c.created_at_ms,
        string_to_array(@required_capabilities::text, ',') AS required_capabilities,
        nullif(sqlc.arg(policy)::text, '')::jsonb AS policy,
        CASE WHEN cardinality(@own_fields::text[]) = 0 THEN (sqlc.arg(raw_fields)::text || c.last_field)::jsonb END AS raw_fields,
        c.last_field,
        set_config('ffx.own_entries', pg_current_xact_id()::text, true) AS own_entries
    FROM (
        SELECT
            n.created_at_ms,
            ',"last_mutation_at":"' || n.created_at_ms || '"}' AS last_field
        FROM (
            SELECT coalesce(nullif(sqlc.arg(created_at_ms)::bigint, 0), ffx_now_ms(sqlc.narg(now_ms))) AS created_at_ms
            OFFSET 0
        ) AS n
    ) AS c
),
input AS (
    -- The values of each execution. No units: one of each limit.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@priorities::integer[]) AS priority,
        unnest(@payloads::bytea[]) AS payload,
        unnest(@own_fields::text[]) AS own_fields,
        string_to_array(unnest(@limit_ids::text[]), ',')::uuid[] AS limit_ids,
        string_to_array(nullif(unnest(@limit_units::text[]), ''), ',')::bigint[] AS limit_units
),
made AS (
    -- The rows.
    INSERT INTO ff_exec_core (
        -- The columns of a new execution.
        partition_key, execution_id, flow_id, lane_id, required_capabilities, attempt_index,
        lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
        blocking_reason, priority, created_at_ms, deadline_at_ms, payload, policy, raw_fields,
        ffx_namespace, ffx_instance_tag, ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count,
        ffx_lease_epoch, ffx_delay_until_ms, ffx_execution_deadline_ms, ffx_budget_ids,
        ffx_quota_policy_id, ffx_quota_partition, ffx_limit_ids, ffx_limit_units, ffx_gate_id,
        ffx_unique_key, ffx_admitted, ffx_created_at_ms
    )
    -- Alike executions. Reads shared, and their own values from input. Fair ones have a place and a creation time.
    SELECT
        i.partition_key,
        i.execution_id,
        NULL,
        sqlc.arg(lane_id)::text,
        s.required_capabilities,
        0,
        'runnable',
        'unowned',
        'eligible_now',
        'waiting',
        'pending_first_attempt',
        'waiting_for_worker',
        i.priority,
        s.created_at_ms,
        NULL,
        i.payload,
        s.policy,
        d.document,
        d.document ->> 'namespace',
        d.document -> 'tags' ->> 'cairn.instance_id',
        s.created_at_ms,
        0,
        0,
        0,
        NULL,
        0,
        NULL,
        NULL,
        NULL,
        i.limit_ids,
        i.limit_units,
        NULL,
        NULL,
        true,
        NULL
    FROM input AS i
    CROSS JOIN shared AS s
    CROSS JOIN LATERAL (
        SELECT coalesce(s.raw_fields, (sqlc.arg(raw_fields)::text || i.own_fields || s.last_field)::jsonb) AS document
        OFFSET 0
    ) AS d
    RETURNING
        partition_key,
        execution_id,
        required_capabilities,
        priority,
        created_at_ms
),
queued AS (
    -- The queue entries of alike executions. Reads made.
    INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
    SELECT
        sqlc.arg(lane_id)::text,
        - m.priority::bigint,
        m.created_at_ms,
        m.execution_id,
        m.partition_key,
        m.required_capabilities,
        sqlc.arg(kind)::text
    FROM made AS m
)
SELECT
    -- Counted before the trigger is switched on again.
    count(*) AS created,
    set_config('ffx.own_entries', '', true) AS own_entries
FROM made;

-- name: InsertExecutions :many
-- InsertExecutions creates executions, all members of one flow or of none. An existing execution stays unchanged and
-- has no row in the result. In the arrays of instants zero means "not given", in the arrays of text the empty string
-- does.
--
-- Passages: created_columns.
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, operator.Fork.
-- Locks: L1 waits (for a concurrent insert of the same id).
WITH clock AS MATERIALIZED (
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@lane_ids::text[]) AS lane_id,
        unnest(@required_capabilities::text[]) AS required_capabilities,
        unnest(@priorities::integer[]) AS priority,
        unnest(@created_at_ms::bigint[]) AS created_at_ms,
        unnest(@delays_until_ms::bigint[]) AS delay_until_ms,
        unnest(@deadlines_at_ms::bigint[]) AS deadline_at_ms,
        unnest(@deadlines_after_ms::bigint[]) AS deadline_after_ms,
        unnest(@held::boolean[]) AS held,
        unnest(@payloads::bytea[]) AS payload,
        unnest(@policies::text[]) AS policy,
        unnest(@raw_fields::text[]) AS raw_fields,
        unnest(@budget_ids::text[]) AS budget_ids,
        unnest(@quota_policy_ids::text[]) AS quota_policy_id,
        unnest(@quota_partitions::smallint[]) AS quota_partition,
        unnest(@limit_ids::text[]) AS limit_ids,
        unnest(@limit_units::text[]) AS limit_units,
        unnest(@unique_keys::uuid[]) AS ffx_unique_key,
        unnest(@places_ms::bigint[]) AS place_ms
),
dated AS (
    SELECT
        i.partition_key,
        i.execution_id,
        i.lane_id,
        i.required_capabilities,
        i.priority,
        coalesce(nullif(i.created_at_ms, 0), (SELECT now_ms FROM clock)) AS created_at_ms,
        CASE WHEN i.delay_until_ms > (SELECT now_ms FROM clock) THEN i.delay_until_ms END AS delay_until_ms,
        CASE
            WHEN i.deadline_at_ms > 0 THEN i.deadline_at_ms
            WHEN i.deadline_after_ms > 0 THEN least(
                coalesce(nullif(i.created_at_ms, 0), (SELECT now_ms FROM clock))::numeric + i.deadline_after_ms,
                9223372036854775807
            )::bigint
            ELSE 0
        END AS execution_deadline_ms,
        i.held,
        CASE
            WHEN i.budget_ids <> '' THEN 'budget'
            WHEN i.limit_ids <> '' THEN 'limit'
        END AS gate,
        i.payload,
        i.policy,
        i.raw_fields,
        i.budget_ids,
        i.quota_policy_id,
        i.quota_partition,
        i.limit_ids,
        i.limit_units,
        i.ffx_unique_key,
        -- Zero in the array of a batch in which others are fair.
        nullif(i.place_ms, 0) AS place_ms
    FROM input AS i
)
INSERT INTO ff_exec_core (
    -- The columns of a new execution.
    partition_key, execution_id, flow_id, lane_id, required_capabilities, attempt_index,
    lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
    blocking_reason, priority, created_at_ms, deadline_at_ms, payload, policy, raw_fields,
    ffx_namespace, ffx_instance_tag, ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count,
    ffx_lease_epoch, ffx_delay_until_ms, ffx_execution_deadline_ms, ffx_budget_ids,
    ffx_quota_policy_id, ffx_quota_partition, ffx_limit_ids, ffx_limit_units, ffx_gate_id,
    ffx_unique_key, ffx_admitted, ffx_created_at_ms
)
SELECT
    d.partition_key,
    d.execution_id,
    sqlc.narg(flow_id)::uuid,
    d.lane_id,
    string_to_array(d.required_capabilities, ','),
    0,
    'runnable',
    'unowned',
    CASE
        WHEN d.held THEN 'blocked_by_dependencies'
        WHEN d.delay_until_ms IS NOT NULL THEN 'not_eligible_until_time'
        WHEN d.gate = 'budget' THEN 'blocked_by_budget'
        WHEN d.gate = 'limit' THEN 'blocked_by_quota'
        ELSE 'eligible_now'
    END,
    CASE
        WHEN d.held THEN 'waiting_children'
        WHEN d.delay_until_ms IS NOT NULL THEN 'delayed'
        WHEN d.gate IS NOT NULL THEN 'rate_limited'
        ELSE 'waiting'
    END,
    'pending_first_attempt',
    CASE
        WHEN d.held THEN 'waiting_for_children'
        WHEN d.delay_until_ms IS NOT NULL THEN 'waiting_for_delay'
        WHEN d.gate = 'budget' THEN 'waiting_for_budget'
        WHEN d.gate = 'limit' THEN 'waiting_for_quota'
        ELSE 'waiting_for_worker'
    END,
    d.priority,
    -- A place of fair work stands where the age of other work does.
    coalesce(d.place_ms, d.created_at_ms),
    CASE
        WHEN d.held OR d.delay_until_ms IS NULL THEN nullif(d.execution_deadline_ms, 0)
        ELSE least(d.delay_until_ms, nullif(d.execution_deadline_ms, 0))
    END,
    d.payload,
    nullif(d.policy, '')::jsonb,
    j.document || jsonb_build_object('last_mutation_at', d.created_at_ms::text),
    j.document ->> 'namespace',
    j.document -> 'tags' ->> 'cairn.instance_id',
    d.created_at_ms,
    0,
    0,
    0,
    d.delay_until_ms,
    d.execution_deadline_ms,
    CASE WHEN d.budget_ids <> '' THEN string_to_array(d.budget_ids, ',')::uuid[] END,
    nullif(d.quota_policy_id, '')::uuid,
    CASE WHEN d.quota_policy_id <> '' THEN d.quota_partition END,
    CASE WHEN d.limit_ids <> '' THEN string_to_array(d.limit_ids, ',')::uuid[] END,
    CASE WHEN d.limit_units <> '' THEN string_to_array(d.limit_units, ',')::bigint[] END,
    CASE
        WHEN d.held OR d.delay_until_ms IS NOT NULL THEN NULL
        WHEN d.gate = 'budget' THEN (string_to_array(d.budget_ids, ','))[1]::uuid
        WHEN d.gate = 'limit' THEN (string_to_array(d.limit_ids, ','))[1]::uuid
    END,
    d.ffx_unique_key,
    NULL,
    CASE WHEN d.place_ms IS NOT NULL THEN d.created_at_ms END
FROM dated AS d
CROSS JOIN LATERAL (
    SELECT d.raw_fields::jsonb AS document
    OFFSET 0
) AS j
ON CONFLICT (partition_key, execution_id) DO NOTHING
RETURNING
    partition_key,
    execution_id,
    public_state;

-- name: ReadExistingExecutions :many
-- ReadExistingExecutions returns which of some executions exist. A missing execution has no row.
--
-- Used by: engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    e.partition_key,
    e.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e;
