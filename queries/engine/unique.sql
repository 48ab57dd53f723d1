-- name: InsertUnique :one
-- InsertUnique creates unique executions as InsertAlike does others, with their keys, which differ. Keys are taken over
-- if their holders have left the states in which a key is in force. If a key is in force, nothing is created, and all
-- keys in force are returned with their holders. SQLSTATE 23505 (another creation of a key, or an id or an entry,
-- exists) and 22012 (a holder has been replaced, has run again or no longer exists) keep nothing; the caller then uses
-- InsertExecutions.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: keys waits (for a concurrent creator, in array order); L1 waits (for a concurrent insert of the same id); queue new. The caller sorts by key.
WITH shared AS MATERIALIZED (
    -- include alike_shared
),
looked AS MATERIALIZED (
    -- The keys taken before, with their holders.
    SELECT
        t.key,
        t.taken,
        t.holder_partition_key,
        t.execution_id,
        h.in_force
    FROM ffx_unique AS t
    LEFT JOIN LATERAL (
        -- include unique_holder
    ) AS h ON TRUE
    WHERE t.key = ANY (@unique_keys::uuid[])
),
judged AS MATERIALIZED (
    -- Whether no key is in force, and the keys in force. One row.
    SELECT
        coalesce(bool_and(l.in_force IS NOT TRUE), TRUE) AS free,
        count(*) FILTER (WHERE l.in_force IS NULL) AS orphans,
        coalesce(array_agg(l.key), '{}') AS known,
        coalesce(array_agg(l.key) FILTER (WHERE l.in_force), '{}') AS held,
        coalesce(array_agg(l.holder_partition_key) FILTER (WHERE l.in_force), '{}') AS partition_keys,
        coalesce(array_agg(l.execution_id) FILTER (WHERE l.in_force), '{}') AS execution_ids
    FROM looked AS l
),
free AS (
    -- The values of each execution, if all are created.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@priorities::integer[]) AS priority,
        unnest(@payloads::bytea[]) AS payload,
        unnest(@own_fields::text[]) AS own_fields,
        unnest(@unique_keys::uuid[]) AS unique_key
    FROM judged AS j
    WHERE j.free
),
inserted AS (
    -- New keys.
    INSERT INTO ffx_unique (key, lasts, taken, holder_partition_key, execution_id)
    SELECT
        i.key,
        sqlc.arg(lasts)::text,
        0,
        i.partition_key,
        i.execution_id
    FROM (
        SELECT
            unnest(@unique_keys::uuid[]) AS key,
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@execution_ids::uuid[]) AS execution_id
    ) AS i
    WHERE
        (SELECT j.free FROM judged AS j)
        AND NOT i.key = ANY ((SELECT j.known FROM judged AS j)::uuid[])
),
taken_over AS (
    -- Left keys. A holder running again meanwhile has raised taken.
    UPDATE ffx_unique AS u
    SET
        lasts = sqlc.arg(lasts)::text,
        taken = u.taken + 1,
        holder_partition_key = i.partition_key,
        execution_id = i.execution_id
    FROM (
        SELECT
            unnest(@unique_keys::uuid[]) AS key,
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@execution_ids::uuid[]) AS execution_id
    ) AS i
    CROSS JOIN LATERAL (
        SELECT t.taken
        FROM ffx_unique AS t
        WHERE t.key = i.key
        LIMIT 1
    ) AS l
    WHERE
        u.key = i.key
        AND u.taken = l.taken
        AND (SELECT j.free AND j.known <> '{}' FROM judged AS j)
    RETURNING u.key
),
made AS (
    -- The rows.
    INSERT INTO ff_exec_core (
        -- include created_columns
    )
    -- include alike_made: input = free, unique_key = i.unique_key, place_ms = s.created_at_ms, fair_created_at_ms = NULL, limit_ids = NULL, limit_units = NULL, admitted = NULL
),
queued AS (
    -- include alike_queued
)
SELECT
    j.held::uuid[] AS held,
    j.partition_keys::smallint[] AS partition_keys,
    j.execution_ids::uuid[] AS execution_ids,
    (1 / (NOT j.free OR j.orphans = 0 AND cardinality(j.known) = t.taken_over)::integer)::integer AS whole,
    -- Counted before the trigger is switched on again.
    m.created,
    set_config('ffx.own_entries', '', true) AS own_entries
FROM judged AS j
CROSS JOIN (SELECT count(*) AS taken_over FROM taken_over) AS t
CROSS JOIN (SELECT count(*) AS created FROM made) AS m;

-- name: InsertUniqueKeys :many
-- InsertUniqueKeys gives new keys of unique work to executions about to be created. No row: the key exists, and
-- ListUniqueKeys returns the holder. The insert waits for a concurrent creator of the same key.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, operator.Replay, operator.ReplayWhere.
-- Locks: keys waits (for a concurrent creator, in array order). The caller sorts by key.
INSERT INTO ffx_unique (key, lasts, taken, holder_partition_key, execution_id)
SELECT
    i.key,
    i.lasts,
    0,
    i.holder_partition_key,
    i.execution_id
FROM (
    SELECT
        unnest(@unique_keys::uuid[]) AS key,
        unnest(@lasts::text[]) AS lasts,
        unnest(@holder_partition_keys::smallint[]) AS holder_partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- name: ListUniqueKeys :many
-- ListUniqueKeys returns the holders of the keys of unique work, and whether each is in a state in which the key is in
-- force. No row: the key is new.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, operator.Replay, operator.ReplayWhere.
-- Locks: none.
SELECT
    t.key,
    t.taken,
    t.holder_partition_key,
    t.execution_id,
    coalesce(h.in_force, FALSE)::boolean AS in_force
FROM ffx_unique AS t
LEFT JOIN LATERAL (
    -- include unique_holder
) AS h ON TRUE
WHERE t.key = ANY (@unique_keys::uuid[]);

-- name: TakeOverUniqueKeys :many
-- TakeOverUniqueKeys gives keys of unique work left by other executions to new ones, or gives executions about to run
-- again their keys back. No row: the key has another holder by now, or the holder has run again.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, operator.Replay, operator.ReplayWhere.
-- Locks: keys waits (UPDATE, in array order). The caller sorts by key.
UPDATE ffx_unique AS u
SET
    lasts = i.lasts,
    taken = u.taken + 1,
    holder_partition_key = i.holder_partition_key,
    execution_id = i.execution_id
FROM (
    SELECT
        unnest(@unique_keys::uuid[]) AS key,
        unnest(@former_ids::uuid[]) AS former_id,
        unnest(@taken::bigint[]) AS taken,
        unnest(@lasts::text[]) AS lasts,
        unnest(@holder_partition_keys::smallint[]) AS holder_partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
WHERE
    u.key = i.key
    AND u.execution_id = i.former_id
    AND u.taken = i.taken
RETURNING u.key;

-- name: ReuseUniqueKeys :exec
-- ReuseUniqueKeys gives keys the transaction has just taken to other creations of the batch than the first ones with
-- the key.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: keys held.
UPDATE ffx_unique AS u
SET
    lasts = i.lasts,
    holder_partition_key = i.holder_partition_key,
    execution_id = i.execution_id
FROM (
    SELECT
        unnest(@unique_keys::uuid[]) AS key,
        unnest(@lasts::text[]) AS lasts,
        unnest(@holder_partition_keys::smallint[]) AS holder_partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
WHERE u.key = i.key;

-- name: DropUniqueKeys :exec
-- DropUniqueKeys deletes keys of unique work the transaction has just taken and no creation used.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: keys held.
DELETE FROM ffx_unique AS u
USING (
    SELECT
        unnest(@unique_keys::uuid[]) AS key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
WHERE
    u.key = i.key
    AND (u.execution_id = i.execution_id) IS TRUE;

-- name: DropUniqueKeysOf :exec
-- DropUniqueKeysOf deletes the keys of unique work still held by executions about to be deleted. A key a creation is
-- taking over is skipped. If the creation is rolled back, the key names a missing execution, and is not in force.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: keys skips (rows FOR UPDATE). Spans partitions.
DELETE FROM ffx_unique AS u
USING (
    SELECT k.key
    FROM (
        SELECT
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@execution_ids::uuid[]) AS execution_id
    ) AS i
    CROSS JOIN LATERAL (
        SELECT
            t.execution_id,
            t.ffx_unique_key
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.ffx_unique_key IS NOT NULL
        LIMIT 1
    ) AS e
    CROSS JOIN LATERAL (
        SELECT t.key
        FROM ffx_unique AS t
        WHERE
            t.key = e.ffx_unique_key
            AND t.execution_id = e.execution_id
        FOR UPDATE SKIP LOCKED
    ) AS k
) AS h
WHERE u.key = h.key;

-- name: LockUniqueKeys :exec
-- LockUniqueKeys locks the existing keys of unique work, so their holders change no more: before the creations lock the
-- holders, which may be in the way.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: keys waits (rows FOR NO KEY UPDATE in array order). The caller sorts by key.
WITH input AS (
    SELECT unnest(@unique_keys::uuid[]) AS key
)
SELECT 1
FROM input AS i
CROSS JOIN LATERAL (
    SELECT t.key
    FROM ffx_unique AS t
    WHERE t.key = i.key
    FOR NO KEY UPDATE
) AS k;

-- name: LockUniqueKeysOf :exec
-- LockUniqueKeysOf locks the keys of unique work of executions about to run again, before the executions.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: keys waits (rows FOR NO KEY UPDATE, by key). Spans partitions.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
),
sorted AS MATERIALIZED (
    SELECT e.ffx_unique_key AS key
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT t.ffx_unique_key
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.ffx_unique_key IS NOT NULL
        LIMIT 1
    ) AS e
    ORDER BY e.ffx_unique_key
)
SELECT 1
FROM sorted AS s
CROSS JOIN LATERAL (
    SELECT t.key
    FROM ffx_unique AS t
    WHERE t.key = s.key
    FOR NO KEY UPDATE
) AS k;

-- name: LockUniqueHolders :exec
-- LockUniqueHolders locks the holders of locked keys of unique work, so the next statement sees all committed changes
-- of the holders, also of the gate.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: L1 waits (rows FOR NO KEY UPDATE, by partition and id).
WITH input AS (
    SELECT unnest(@unique_keys::uuid[]) AS key
),
sorted AS MATERIALIZED (
    SELECT
        h.holder_partition_key,
        h.execution_id
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.holder_partition_key,
            t.execution_id
        FROM ffx_unique AS t
        WHERE t.key = i.key
        LIMIT 1
    ) AS h
    ORDER BY
        h.holder_partition_key,
        h.execution_id
)
SELECT 1
FROM sorted AS s
CROSS JOIN LATERAL (
    SELECT t.execution_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = s.holder_partition_key
        AND t.execution_id = s.execution_id
    FOR NO KEY UPDATE
) AS e;

-- name: ReplaceLimits :exec
-- ReplaceLimits gives locked, unstarted executions with the given keys of unique work other limits, unless a limit
-- already counts the execution. An execution waiting for a removed limit waits for the first new limit instead, and is
-- claimable without any. A quota policy and budgets stay.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: L1 held (UPDATE).
WITH input AS (
    -- The executions, with their new limits.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@unique_keys::uuid[]) AS key,
        unnest(@limit_ids::text[]) AS limit_ids,
        unnest(@limit_units::text[]) AS limit_units,
        unnest(@limit_fields::text[]) AS limit_fields
),
renewed AS (
    -- Their limits with the quota policy, which is the last one.
    SELECT
        e.partition_key,
        e.execution_id,
        nullif(array_remove(string_to_array(i.limit_ids, ',')::uuid[] || e.quota_policy_id, NULL), '{}') AS limit_ids,
        CASE
            WHEN i.limit_units <> '' AND e.quota_policy_id IS NOT NULL THEN string_to_array(i.limit_units, ',')::bigint[] || 1::bigint
            WHEN i.limit_units <> '' THEN string_to_array(i.limit_units, ',')::bigint[]
        END AS limit_units,
        i.limit_fields
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            t.ffx_quota_policy_id AS quota_policy_id
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.lifecycle_phase = 'runnable'
            AND t.attempt_state = 'pending_first_attempt'
            AND t.ffx_unique_key = i.key
            AND t.ffx_admitted IS NOT TRUE
            AND NOT EXISTS (
                SELECT
                FROM unnest(t.ffx_limit_ids) AS g (gate_id)
                CROSS JOIN LATERAL (
                    SELECT
                    FROM ffx_gate_use AS u
                    WHERE
                        u.partition_key = get_byte(uuid_send(g.gate_id), 0)::smallint
                        AND u.gate_id = g.gate_id
                        AND u.execution_id = t.execution_id
                    LIMIT 1
                ) AS x
            )
        LIMIT 1
    ) AS e
)
UPDATE ff_exec_core AS e
SET
    raw_fields = (e.raw_fields - 'ffx_limits') || r.limit_fields::jsonb,
    ffx_limit_ids = r.limit_ids,
    ffx_limit_units = r.limit_units,
    ffx_gate_id = CASE
        WHEN e.ffx_gate_id = ANY (e.ffx_budget_ids || r.limit_ids) THEN e.ffx_gate_id
        WHEN e.ffx_gate_id IS NOT NULL THEN coalesce(e.ffx_budget_ids[1], r.limit_ids[1])
    END,
    eligibility_state = CASE
        WHEN e.ffx_gate_id IS NULL OR e.ffx_gate_id = ANY (e.ffx_budget_ids || r.limit_ids) THEN e.eligibility_state
        WHEN coalesce(e.ffx_budget_ids, r.limit_ids) IS NULL THEN 'eligible_now'
        WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
        ELSE 'blocked_by_quota'
    END,
    public_state = CASE
        WHEN e.ffx_gate_id IS NOT NULL AND coalesce(e.ffx_budget_ids, r.limit_ids) IS NULL THEN 'waiting'
        ELSE e.public_state
    END,
    blocking_reason = CASE
        WHEN e.ffx_gate_id IS NULL OR e.ffx_gate_id = ANY (e.ffx_budget_ids || r.limit_ids) THEN e.blocking_reason
        WHEN coalesce(e.ffx_budget_ids, r.limit_ids) IS NULL THEN 'waiting_for_worker'
        WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
        ELSE 'waiting_for_quota'
    END
FROM renewed AS r
WHERE
    e.partition_key = ANY (ARRAY[r.partition_key])
    AND e.execution_id = r.execution_id
    AND (e.ffx_limit_ids, e.ffx_limit_units) IS DISTINCT FROM (r.limit_ids, r.limit_units);

-- name: ReplaceWaiting :many
-- ReplaceWaiting gives locked, unstarted executions with the given keys of unique work other payloads and due times. A
-- due time of 0 is now; a within_ms other than 0 limits the due time to so long after the creation of the execution.
-- The due time of an execution waiting for anything else than a time or a worker stays. A later due time withdraws the
-- admission of limits (freed), and a past one brings the execution before the gate. No row: the execution has started,
-- or no longer exists.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: L1 held (UPDATE).
WITH input AS (
    -- The executions, with their new payloads and due times.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@unique_keys::uuid[]) AS key,
        unnest(@delays_until_ms::bigint[]) AS delay_until_ms,
        unnest(@within_ms::bigint[]) AS within_ms,
        unnest(@payloads::bytea[]) AS payload
),
found AS (
    -- The waiting executions, whether each is delayed now, and the first budget or limit to wait for if not delayed.
    SELECT
        e.partition_key,
        e.execution_id,
        e.admitted,
        e.due_moves,
        e.execution_deadline_ms,
        i.payload,
        n.delay_until_ms,
        n.now_ms,
        (e.due_moves AND n.delay_until_ms > n.now_ms) AS delayed,
        CASE WHEN e.due_moves AND n.delay_until_ms <= n.now_ms AND NOT e.admitted THEN e.first_gate_id END AS gate_id
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            coalesce(t.ffx_admitted, false) AS admitted,
            coalesce(t.ffx_budget_ids[1], t.ffx_limit_ids[1]) AS first_gate_id,
            coalesce(t.ffx_created_at_ms, t.created_at_ms) AS created_at_ms,
            (t.eligibility_state IN ('eligible_now', 'not_eligible_until_time')) AS due_moves,
            greatest(t.ffx_execution_deadline_ms, 0) AS execution_deadline_ms
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.lifecycle_phase = 'runnable'
            AND t.attempt_state = 'pending_first_attempt'
            AND t.ffx_unique_key = i.key
        LIMIT 1
    ) AS e
    CROSS JOIN LATERAL (
        SELECT
            ffx_now_ms(sqlc.narg(now_ms)) AS now_ms,
            CASE
                WHEN i.within_ms = 0 THEN i.delay_until_ms
                ELSE least(i.delay_until_ms, (e.created_at_ms::numeric + i.within_ms))::bigint
            END AS delay_until_ms
        OFFSET 0
    ) AS n
)
UPDATE ff_exec_core AS e
SET
    payload = d.payload,
    ffx_gate_id = CASE WHEN d.due_moves THEN d.gate_id ELSE e.ffx_gate_id END,
    ffx_admitted = CASE WHEN NOT d.delayed THEN e.ffx_admitted END,
    eligibility_state = CASE
        WHEN NOT d.due_moves THEN e.eligibility_state
        WHEN d.delayed THEN 'not_eligible_until_time'
        WHEN d.gate_id = e.ffx_budget_ids[1] THEN 'blocked_by_budget'
        WHEN d.gate_id IS NOT NULL THEN 'blocked_by_quota'
        ELSE 'eligible_now'
    END,
    public_state = CASE
        WHEN NOT d.due_moves THEN e.public_state
        WHEN d.delayed THEN 'delayed'
        WHEN d.gate_id IS NOT NULL THEN 'rate_limited'
        ELSE 'waiting'
    END,
    blocking_reason = CASE
        WHEN NOT d.due_moves THEN e.blocking_reason
        WHEN d.delayed THEN 'waiting_for_delay'
        WHEN d.gate_id = e.ffx_budget_ids[1] THEN 'waiting_for_budget'
        WHEN d.gate_id IS NOT NULL THEN 'waiting_for_quota'
        ELSE 'waiting_for_worker'
    END,
    deadline_at_ms = CASE
        WHEN NOT d.due_moves THEN e.deadline_at_ms
        WHEN d.delayed THEN least(d.delay_until_ms, nullif(d.execution_deadline_ms, 0))
        ELSE nullif(d.execution_deadline_ms, 0)
    END,
    ffx_delay_until_ms = CASE
        WHEN NOT d.due_moves THEN e.ffx_delay_until_ms
        WHEN d.delayed THEN d.delay_until_ms
    END,
    ffx_last_mutation_at_ms = d.now_ms
FROM found AS d
WHERE
    e.partition_key = ANY (ARRAY[d.partition_key])
    AND e.execution_id = d.execution_id
RETURNING
    e.partition_key,
    e.execution_id,
    e.lane_id,
    e.public_state,
    (d.admitted AND d.delayed)::boolean AS freed;
