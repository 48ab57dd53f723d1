-- name: RecordSteps :many
-- RecordSteps stores finished steps for the holders of live leases, and returns the key of each stored one. No row for
-- an item: the fence failed, or another transaction holds the attempt. If an execution already has a step with one of
-- the names, all items fail by unique_violation: ON CONFLICT would cost each batch a third. started: took_ms before
-- now.
--
-- The locked attempt row decides: every loss of a lease changes the row, except that FlowFabric may change the
-- execution's row alone. So a former holder stores nothing, and the next holder sees all steps the former one has
-- stored. The steps of waits are stored by ffx_store_wait, while no worker holds the lease, or by the holder.
--
-- Used by: engine.RecordStep, engine.RecordSteps.
-- Locks: L2 skips (attempt rows FOR NO KEY UPDATE; their steps are new).
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    -- The steps.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@lease_epochs::bigint[]) AS lease_epoch,
        unnest(@names::text[]) AS name,
        unnest(@seqs::integer[]) AS seq,
        unnest(@forms::text[]) AS form,
        unnest(@outcomes::text[]) AS outcome,
        unnest(@results::bytea[]) AS result,
        nullif(unnest(@errors::text[]), '') AS error,
        unnest(@tries::integer[]) AS tries,
        unnest(@tooks_ms::bigint[]) AS took_ms
),
held AS (
    -- The items with live leases, their attempts locked.
    SELECT
        i.partition_key,
        i.execution_id,
        i.attempt_index,
        i.name,
        i.seq,
        i.form,
        i.outcome,
        i.result,
        i.error,
        i.tries,
        i.took_ms
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            c.lifecycle_phase,
            c.ownership_state,
            c.attempt_index
        FROM ff_exec_core AS c
        WHERE
            c.partition_key = i.partition_key
            AND c.execution_id = i.execution_id
        LIMIT 1
    ) AS e
    CROSS JOIN LATERAL (
        SELECT
        FROM ff_attempt AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.attempt_index = i.attempt_index
            -- The fence.
            AND t.lease_epoch = i.lease_epoch
            AND t.lease_expires_at_ms > (SELECT now_ms FROM clock)
            AND e.lifecycle_phase = 'active'
            AND e.ownership_state = 'leased' AND e.attempt_index = i.attempt_index
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ) AS t
)
INSERT INTO ffx_step AS s (
    partition_key, execution_id, name, seq, attempt_index, form, outcome, result, error, tries, started_at_ms, ended_at_ms
)
SELECT
    h.partition_key,
    h.execution_id,
    h.name,
    h.seq,
    h.attempt_index,
    h.form,
    h.outcome,
    h.result,
    h.error,
    h.tries,
    c.now_ms - h.took_ms,
    c.now_ms
FROM held AS h
CROSS JOIN clock AS c
RETURNING
    -- Keys instead of the items' numbers, which would take a join with the input, row by row.
    s.execution_id,
    s.name;

-- name: StoreStep :exec
-- StoreStep stores a finished step for the holder of a live lease, or fails: by not_null_violation if the fence failed
-- or another transaction holds the attempt, by unique_violation if the execution already has a step with the name. So
-- the statement can be sent with the commit. Leases are checked as in RecordSteps.
--
-- Used by: engine.InStep.
-- Locks: L2 skips (attempt rows FOR NO KEY UPDATE; their steps are new).
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
)
INSERT INTO ffx_step (
    partition_key, execution_id, name, seq, attempt_index, form, outcome, result, error, tries, started_at_ms, ended_at_ms
)
VALUES (
    @partition_key, @execution_id, @name, @seq,
    (
        SELECT t.attempt_index
        FROM ff_attempt AS t
        WHERE
            t.partition_key = @partition_key
            AND t.execution_id = @execution_id
            AND t.attempt_index = @attempt_index
            -- The fence.
            AND t.lease_epoch = @lease_epoch
            AND t.lease_expires_at_ms > (SELECT now_ms FROM clock)
            AND (
                SELECT
                    (c.lifecycle_phase = 'active') IS TRUE
                    AND (c.ownership_state = 'leased' AND c.attempt_index = @attempt_index) IS TRUE
                FROM ff_exec_core AS c
                WHERE
                    c.partition_key = @partition_key
                    AND c.execution_id = @execution_id
            )
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ),
    @form, @outcome, @result, nullif(@error::text, ''), @tries,
    (SELECT now_ms FROM clock) - @took_ms::bigint, (SELECT now_ms FROM clock)
);

-- name: InsertStep :execrows
-- InsertStep stores a finished step of an execution, or the result of a call. No row: the execution already has a
-- finished step with the name.
--
-- Used by: engine.RecordStep, engine.RecordSteps.
-- Locks: L2 new. The caller holds the execution and the attempt, and has checked the lease.
INSERT INTO ffx_step AS s (
    partition_key, execution_id, name, seq, attempt_index, form, outcome, result, taken, error, tries, started_at_ms, ended_at_ms
)
VALUES (
    @partition_key, @execution_id, @name, @seq, @attempt_index, @form, @outcome, @result, sqlc.narg(taken)::text::jsonb,
    nullif(@error::text, ''), @tries, @started_at_ms, @ended_at_ms
)
ON CONFLICT (partition_key, execution_id, name) DO UPDATE SET
    attempt_index = excluded.attempt_index,
    outcome = excluded.outcome,
    result = excluded.result,
    error = excluded.error,
    ended_at_ms = excluded.ended_at_ms
WHERE s.outcome = 'called';

-- name: GetStepResult :one
-- GetStepResult reads the result of a step. No row: the execution has no step with the name.
--
-- Used by: engine.RecordStep, engine.RecordSteps.
-- Locks: none.
SELECT s.result
FROM ffx_step AS s
WHERE
    s.partition_key = @partition_key
    AND s.execution_id = @execution_id
    AND s.name = @name;

-- name: ListSteps :many
-- ListSteps reads the steps of an execution, in no order: at most as many as an execution may have. The results are
-- null unless the caller asks for results.
--
-- Used by: engine.Steps, engine.StepResults.
-- Locks: none.
SELECT
    s.name,
    s.seq,
    s.attempt_index,
    s.form,
    s.outcome,
    (CASE WHEN @with_results::boolean THEN s.result END)::bytea AS result,
    (CASE WHEN @with_results::boolean THEN s.taken END)::jsonb AS taken,
    coalesce(octet_length(s.result), 0)::integer AS result_size,
    coalesce(s.error, '')::text AS error,
    s.tries,
    s.started_at_ms,
    s.ended_at_ms,
    coalesce(s.called_partition_keys, '{}')::smallint[] AS called_partition_keys,
    coalesce(s.called_execution_ids, '{}')::uuid[] AS called_execution_ids
FROM ffx_step AS s
WHERE
    s.partition_key = @partition_key
    AND s.execution_id = @execution_id;

-- name: DropStepsFrom :execrows
-- DropStepsFrom deletes the steps of an execution from a named one on; '': all. No row: the execution has no step with
-- the name.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L2 waits (steps, DELETE). The caller holds the execution and the attempt, so no step is added.
DELETE FROM ffx_step AS s
WHERE
    s.partition_key = @partition_key
    AND s.execution_id = @execution_id
    AND (
        @name::text = ''
        OR s.seq >= (
            SELECT f.seq
            FROM ffx_step AS f
            WHERE
                f.partition_key = @partition_key
                AND f.execution_id = @execution_id
                AND f.name = @name::text
        )
    );

-- name: ReopenCalls :execrows
-- ReopenCalls asks again for the outcomes of failed calls behind the last successful step: the execution failed with
-- these calls. No row: there are no such calls.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L2 waits (steps, UPDATE). The caller holds the execution and the attempt, so no step is added.
UPDATE ffx_step AS s
SET
    outcome = 'called',
    result = NULL,
    error = NULL
WHERE
    s.partition_key = @partition_key
    AND s.execution_id = @execution_id
    AND s.outcome = 'failure'
    AND s.seq > (
        SELECT coalesce(max(f.seq), -1)
        FROM ffx_step AS f
        WHERE
            f.partition_key = @partition_key
            AND f.execution_id = @execution_id
            AND f.outcome NOT IN ('failure', 'called')
    );
