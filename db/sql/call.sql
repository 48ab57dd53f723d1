-- name: InsertCall :execrows
-- InsertCall stores a step that has called executions whose results are not stored yet. No row: the execution already
-- has a step with the name.
--
-- Used by: engine.Call.
-- Locks: L2 new. The caller holds the execution and the attempt, and has checked the lease.
INSERT INTO ffx_step (
    partition_key, execution_id, name, seq, attempt_index, form, outcome, tries, started_at_ms, ended_at_ms,
    called_partition_keys, called_execution_ids
)
VALUES (
    @partition_key, @execution_id, @name, @seq, @attempt_index, @form, 'called', 1, @now_ms, @now_ms,
    @called_partition_keys::smallint[], @called_execution_ids::uuid[]
)
ON CONFLICT (partition_key, execution_id, name) DO NOTHING;

-- name: GetCalled :one
-- GetCalled reads the executions a step has called. No row: the execution has no step with the name.
--
-- Used by: engine.Call.
-- Locks: none.
SELECT
    coalesce(s.called_partition_keys, '{}')::smallint[] AS called_partition_keys,
    coalesce(s.called_execution_ids, '{}')::uuid[] AS called_execution_ids
FROM ffx_step AS s
WHERE
    s.partition_key = @partition_key
    AND s.execution_id = @execution_id
    AND s.name = @name;

-- name: SetCaller :execrows
-- SetCaller stores the creating call in new executions, in the creating transaction.
--
-- Used by: engine.Call.
-- Locks: L1 held (UPDATE; the executions are new).
UPDATE ff_exec_core AS e
SET ffx_caller = jsonb_build_object(
    'partition_key', @caller_partition_key::smallint, 'execution_id', @caller_execution_id::uuid, 'step', @step::text
)
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
WHERE
    e.partition_key = ANY (ARRAY[i.partition_key])
    AND e.execution_id = i.execution_id;

-- name: ResumeCallers :many
-- ResumeCallers lets locked callers continue if all executions of the awaited call have ended, by ord (from 0). lane:
-- where a worker can claim the caller, or ''. No row: the caller goes on waiting, or does something else.
--
-- Used by: engine.Suspend, engine.SuspendEach, upkeep.ResumeCallers.
-- Locks: L1 held; L5 waits (waitpoint rows, DELETE); L7 new.
SELECT
    r.ord::integer AS ord,
    r.lane::text AS lane
FROM (
    SELECT
        i.ord,
        ffx_resume_caller(i.partition_key, i.execution_id, i.step, @now_ms::bigint) AS lane
    FROM (
        SELECT
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@execution_ids::uuid[]) AS execution_id,
            unnest(@steps::text[]) AS step,
            generate_series(0, cardinality(@execution_ids::uuid[]) - 1) AS ord
    ) AS i
) AS r
WHERE r.lane IS NOT NULL;

-- name: ScanCallEnds :many
-- ScanCallEnds reads noted ends of called executions after a position, in the order of writing. gone: the caller no
-- longer exists.
--
-- Used by: upkeep.ResumeCallers.
-- Locks: none. Spans partitions.
SELECT
    c.id,
    c.partition_key,
    c.execution_id,
    c.step,
    (e.found IS NULL)::boolean AS gone
FROM (
    SELECT
        t.id,
        t.partition_key,
        t.execution_id,
        t.step
    FROM ffx_call_end AS t
    WHERE t.id > @after_id
    ORDER BY t.id
    LIMIT @page_size::integer
) AS c
LEFT JOIN LATERAL (
    SELECT true AS found
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = c.partition_key
        AND x.execution_id = c.execution_id
    LIMIT 1
) AS e ON true
ORDER BY c.id;

-- name: DropCallEnds :execrows
-- DropCallEnds deletes noted ends whose callers the caller has locked and looked at, or which are gone.
--
-- Used by: upkeep.ResumeCallers.
-- Locks: L7 waits (DELETE; another call of the job may delete the same notes).
DELETE FROM ffx_call_end AS t
USING (
    SELECT unnest(@ids::bigint[]) AS id
) AS i
WHERE t.id = i.id;

-- name: GetCaller :one
-- GetCaller reads the namespace of an execution. No row: the execution does not exist.
--
-- Used by: engine.Call.
-- Locks: none.
SELECT coalesce(e.ffx_namespace, '')::text AS namespace
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;
