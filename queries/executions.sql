-- name: CopyExecutions :copyfrom
-- CopyExecutions creates executions that are claimable at once and belong to no flow, by COPY: InsertExecutions
-- for many plain ones. SQLSTATE 23505 (an id exists already) keeps nothing; the caller then takes the other.
--
-- Used by: engine.CreateExecutions.
-- Locks: none beyond the inserted rows; a concurrent insert of the same id is waited for.
INSERT INTO ff_exec_core (
    partition_key,
    execution_id,
    lane_id,
    required_capabilities,
    lifecycle_phase,
    ownership_state,
    eligibility_state,
    public_state,
    attempt_state,
    blocking_reason,
    priority,
    created_at_ms,
    payload,
    policy,
    raw_fields,
    ffx_last_mutation_at_ms,
    ffx_attempt_count,
    ffx_retry_count,
    ffx_lease_epoch,
    ffx_execution_deadline_ms
)
VALUES (
    @partition_key,
    @execution_id,
    @lane_id,
    @required_capabilities,
    @lifecycle_phase,
    @ownership_state,
    @eligibility_state,
    @public_state,
    @attempt_state,
    @blocking_reason,
    @priority,
    @created_at_ms,
    @payload,
    @policy,
    @raw_fields,
    @ffx_last_mutation_at_ms,
    @ffx_attempt_count,
    @ffx_retry_count,
    @ffx_lease_epoch,
    @ffx_execution_deadline_ms
);

-- name: InsertExecutions :many
-- InsertExecutions creates executions, all members of one flow or of none. An id that exists already is
-- left as it is and has no row in the result. Zero stands for "not given" in the arrays of instants,
-- the empty string in the arrays of text.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow.
-- Locks: none beyond the inserted rows; a concurrent insert of the same id is waited for.
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
        unnest(@quota_partitions::smallint[]) AS quota_partition
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
            WHEN i.quota_policy_id <> '' THEN 'quota'
        END AS gate,
        i.payload,
        i.policy,
        i.raw_fields,
        i.budget_ids,
        i.quota_policy_id,
        i.quota_partition
    FROM input AS i
)
INSERT INTO ff_exec_core (
    partition_key,
    execution_id,
    flow_id,
    lane_id,
    required_capabilities,
    attempt_index,
    lifecycle_phase,
    ownership_state,
    eligibility_state,
    public_state,
    attempt_state,
    blocking_reason,
    priority,
    created_at_ms,
    deadline_at_ms,
    payload,
    policy,
    raw_fields,
    ffx_last_mutation_at_ms,
    ffx_attempt_count,
    ffx_retry_count,
    ffx_lease_epoch,
    ffx_delay_until_ms,
    ffx_execution_deadline_ms,
    ffx_budget_ids,
    ffx_quota_policy_id,
    ffx_quota_partition,
    ffx_gate_id
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
        WHEN d.gate = 'quota' THEN 'blocked_by_quota'
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
        WHEN d.gate = 'quota' THEN 'waiting_for_quota'
        ELSE 'waiting_for_worker'
    END,
    d.priority,
    d.created_at_ms,
    CASE
        WHEN d.held OR d.delay_until_ms IS NULL THEN nullif(d.execution_deadline_ms, 0)
        ELSE least(d.delay_until_ms, nullif(d.execution_deadline_ms, 0))
    END,
    d.payload,
    nullif(d.policy, '')::jsonb,
    d.raw_fields::jsonb || jsonb_build_object('last_mutation_at', d.created_at_ms::text),
    d.created_at_ms,
    0,
    0,
    0,
    d.delay_until_ms,
    d.execution_deadline_ms,
    CASE WHEN d.budget_ids <> '' THEN string_to_array(d.budget_ids, ',')::uuid[] END,
    nullif(d.quota_policy_id, '')::uuid,
    CASE WHEN d.quota_policy_id <> '' THEN d.quota_partition END,
    CASE
        WHEN d.held OR d.delay_until_ms IS NOT NULL THEN NULL
        WHEN d.gate = 'budget' THEN (string_to_array(d.budget_ids, ','))[1]::uuid
        WHEN d.gate = 'quota' THEN d.quota_policy_id::uuid
    END
FROM dated AS d
ON CONFLICT (partition_key, execution_id) DO NOTHING
RETURNING
    partition_key,
    execution_id,
    public_state;

-- name: ReadExistingExecutions :many
-- ReadExistingExecutions returns which of some executions exist. One that does not has no row.
--
-- Used by: engine.CreateExecutions, where an id or a key stands twice.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@partition_keys::smallint[])
)
SELECT
    e.partition_key,
    e.execution_id
FROM input AS i
INNER JOIN ff_exec_core AS e
    ON e.partition_key = i.partition_key
    AND e.execution_id = i.execution_id;

-- name: InsertCreationKeys :many
-- InsertCreationKeys claims idempotency keys for executions about to be created; ord (from 1) is the
-- input position. A key that is taken, in or out of its window, has no row: TakeCreationKeys tells.
-- It waits for a concurrent creator of the same key.
--
-- Used by: engine.CreateExecutions, engine.CreateFlow.
-- Locks: the inserted rows, in array order: the caller sorts by (partition_key, namespace, key).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@windows_ms::bigint[]) AS window_ms
)
INSERT INTO ffx_create_dedup (
    partition_key,
    namespace,
    idempotency_key,
    execution_id,
    expires_at_ms
)
SELECT
    i.partition_key,
    i.namespace,
    i.idempotency_key,
    i.execution_id,
    least(ffx_now_ms(sqlc.narg(now_ms))::numeric + i.window_ms, 9223372036854775807)::bigint
FROM input AS i
ON CONFLICT (partition_key, namespace, idempotency_key) DO NOTHING
RETURNING
    partition_key,
    namespace,
    idempotency_key;

-- name: TakeCreationKeys :many
-- TakeCreationKeys locks idempotency keys that InsertCreationKeys found taken. No row: the key has gone
-- meanwhile, and the creation starts over.
--
-- Used by: engine.CreateExecutions, engine.CreateFlow.
-- Locks: the keys' rows FOR UPDATE, in array order.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key
    LIMIT cardinality(@partition_keys::smallint[])
)
SELECT
    i.partition_key::smallint AS partition_key,
    i.namespace::text AS namespace,
    i.idempotency_key::text AS idempotency_key,
    k.execution_id::uuid AS execution_id,
    (k.expires_at_ms > ffx_now_ms(sqlc.narg(now_ms)))::boolean AS in_window
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        d.execution_id,
        d.expires_at_ms
    FROM ffx_create_dedup AS d
    WHERE
        d.partition_key = i.partition_key
        AND d.namespace = i.namespace
        AND d.idempotency_key = i.idempotency_key
    FOR UPDATE
) AS k;

-- name: ReuseCreationKeys :exec
-- ReuseCreationKeys gives keys to new executions: those whose window has passed, and those that went to another
-- creation of the batch than the first that asked for them.
--
-- Used by: engine.CreateExecutions, engine.CreateFlow.
-- Locks: rows inserted by InsertCreationKeys or locked by TakeCreationKeys.
UPDATE ffx_create_dedup AS d
SET
    execution_id = i.execution_id,
    expires_at_ms = least(ffx_now_ms(sqlc.narg(now_ms))::numeric + i.window_ms, 9223372036854775807)::bigint
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@windows_ms::bigint[]) AS window_ms
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    d.partition_key = i.partition_key
    AND d.namespace = i.namespace
    AND d.idempotency_key = i.idempotency_key;

-- name: DropCreationKeys :exec
-- DropCreationKeys gives keys back that no creation made use of.
--
-- Used by: engine.CreateExecutions.
-- Locks: rows inserted or locked by the same transaction.
DELETE FROM ffx_create_dedup AS d
USING (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    d.partition_key = i.partition_key
    AND d.namespace = i.namespace
    AND d.idempotency_key = i.idempotency_key
    AND d.execution_id = i.execution_id;

-- name: PruneCreationKeys :execrows
-- PruneCreationKeys deletes idempotency keys whose window has passed.
--
-- Used by: engine.PruneCreationKeys.
-- Locks: the deleted rows, SKIP LOCKED. Spans partitions.
DELETE FROM ffx_create_dedup
WHERE ctid = ANY (ARRAY(
    SELECT d.ctid
    FROM ffx_create_dedup AS d
    WHERE d.expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ORDER BY d.expires_at_ms
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
));

-- name: GetExecution :one
-- GetExecution returns one execution with its current attempt: everything the reads are made of.
-- No row: it does not exist.
--
-- Used by: engine.DescribeExecution, engine.ExecutionInfo, engine.ExecutionState, engine.AttemptIndex,
-- engine.AttemptCount.
-- Locks: none; one snapshot.
SELECT
    e.flow_id,
    e.lane_id,
    e.required_capabilities,
    e.attempt_index AS pointer,
    e.lifecycle_phase,
    e.ownership_state,
    e.eligibility_state,
    e.public_state,
    e.attempt_state,
    coalesce(e.blocking_reason, '')::text AS blocking_reason,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    e.cancelled_by,
    e.priority,
    e.created_at_ms,
    e.terminal_at_ms,
    e.deadline_at_ms,
    e.started_at_ms,
    e.lease_reclaim_count,
    e.raw_fields,
    e.ffx_last_mutation_at_ms,
    e.ffx_attempt_count,
    e.ffx_retry_count,
    e.ffx_lease_epoch,
    e.ffx_delay_until_ms,
    e.ffx_execution_deadline_ms,
    e.ffx_budget_ids,
    e.ffx_quota_policy_id,
    coalesce(cur.attempt_index, -1)::integer AS current_index,
    cur.worker_id AS current_worker_id,
    cur.worker_instance_id AS current_worker_instance_id,
    coalesce(cur.lease_epoch, 0)::bigint AS current_epoch,
    cur.lease_expires_at_ms AS current_lease_expires_at_ms,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(cur.raw_fields, '{}')::jsonb AS current_raw_fields,
    cur.ffx_attempt_id AS current_attempt_id,
    cur.ffx_lease_id AS current_lease_id,
    coalesce(p.outcome, '')::text AS pointer_outcome,
    s.ffx_primary_waitpoint_id AS primary_waitpoint_id,
    coalesce((
        SELECT max(t.attempt_index) + 1
        FROM ff_attempt AS t
        WHERE
            t.partition_key = e.partition_key
            AND t.execution_id = e.execution_id
    ), 0)::integer AS attempt_rows,
    (
        SELECT t.started_at_ms
        FROM ff_attempt AS t
        WHERE
            t.partition_key = e.partition_key
            AND t.execution_id = e.execution_id
            AND t.started_at_ms IS NOT NULL
        ORDER BY t.attempt_index
        LIMIT 1
    ) AS first_attempt_started_at_ms
FROM ff_exec_core AS e
LEFT JOIN LATERAL (
    SELECT
        c.attempt_index,
        c.worker_id,
        c.worker_instance_id,
        c.lease_epoch,
        c.lease_expires_at_ms,
        c.outcome,
        c.raw_fields,
        c.ffx_attempt_id,
        c.ffx_lease_id
    FROM ff_attempt AS c
    WHERE
        c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN ff_attempt AS p
    ON p.partition_key = e.partition_key
    AND p.execution_id = e.execution_id
    AND p.attempt_index = e.attempt_index
LEFT JOIN ff_suspension_current AS s
    ON s.partition_key = e.partition_key
    AND s.execution_id = e.execution_id
    AND e.lifecycle_phase = 'suspended'
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: GetExecutionInput :one
-- GetExecutionInput returns what a worker needs to run an execution. No row: it does not exist.
--
-- Used by: engine.ExecutionInput.
-- Locks: none.
SELECT
    e.payload,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    (e.raw_fields -> 'tags')::jsonb AS tags
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: GetExecutionResult :one
-- GetExecutionResult returns the stored result. No row: the execution does not exist.
--
-- Used by: engine.ExecutionResult.
-- Locks: none.
SELECT e.result
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: GetExecutionOwner :one
-- GetExecutionOwner returns the flow and namespace of an execution. No row: it does not exist.
--
-- Used by: engine.ExecutionFlow, engine.ExecutionNamespace.
-- Locks: none.
SELECT
    e.flow_id,
    coalesce(e.raw_fields ->> 'namespace', '')::text AS namespace
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: GetExecutionTag :one
-- GetExecutionTag returns one tag and whether it is set. No row: the execution does not exist.
--
-- Used by: engine.ExecutionTag.
-- Locks: none.
SELECT
    coalesce(e.raw_fields -> 'tags' ->> @tag_key::text, '')::text AS tag_value,
    (e.raw_fields -> 'tags' ->> @tag_key::text IS NOT NULL)::boolean AS is_set
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: SetExecutionTag :execrows
-- SetExecutionTag sets one tag, making the tags object where it is missing. 0 rows: the execution does
-- not exist. One statement, so concurrent writers of other tags lose nothing.
--
-- Used by: engine.SetExecutionTag.
-- Locks: the execution row (UPDATE).
UPDATE ff_exec_core AS e
SET
    raw_fields = jsonb_set(
        CASE WHEN jsonb_typeof(e.raw_fields) = 'object' THEN e.raw_fields ELSE '{}'::jsonb END,
        '{tags}',
        CASE WHEN jsonb_typeof(e.raw_fields -> 'tags') = 'object' THEN e.raw_fields -> 'tags' ELSE '{}'::jsonb END
            || jsonb_build_object(@tag_key::text, @tag_value::text)
    ) || jsonb_build_object('last_mutation_at', ffx_now_ms(sqlc.narg(now_ms))::text),
    ffx_last_mutation_at_ms = ffx_now_ms(sqlc.narg(now_ms))
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: ListExecutions :many
-- ListExecutions pages through the executions of one partition by id, from from_execution_id on.
--
-- Used by: engine.ListExecutions.
-- Locks: none.
SELECT e.execution_id
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id >= @from_execution_id
ORDER BY e.execution_id
LIMIT @page_size::integer;
