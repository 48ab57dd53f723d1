-- name: CompleteExecutions :many
-- CompleteExecutions ends running attempts with success and stores their results; ord (from 0) is the input position.
-- No row for an item: the fence failed or the row is not canonical, and the caller settles the item by the slow path,
-- which finds the reason.
--
-- CompleteExecutions is the fast path, all or nothing: SQLSTATE 22012 (an execution fits but its attempt does not, or
-- fewer than at_least fit) keeps nothing. The completion events of members are inserted as dispatched: the same transaction resolves their
-- dependents, whose events follow.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim.
-- Locks: L1 waits (execution rows, UPDATE in array order); L2 waits (their attempts, UPDATE); L7 new. The caller
-- sorts by (partition_key, execution_id) and holds L0 of members.
WITH clock AS MATERIALIZED (
    -- The time of the completion, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    -- The completions, in lock order, with their place in the input.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@lease_epochs::bigint[]) AS lease_epoch,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@results::bytea[]) AS result,
        nullif(unnest(@traces::text[]), '') AS trace,
        -- Not by generate_subscripts: the planner expects a thousand rows from the function and ten from an array, and
        -- for a thousand the whole table would be read instead of looking up each row.
        unnest(@ords::integer[]) AS ord
    LIMIT cardinality(@execution_ids::uuid[])
),
completed AS (
    -- The executions whose fence held, ended.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'terminal',
        public_state = 'completed',
        attempt_state = 'attempt_terminal',
        result = i.result,
        ffx_trace = coalesce(i.trace, e.ffx_trace),
        terminal_at_ms = (SELECT now_ms FROM clock),
        -- include set_ended: at_ms = (SELECT now_ms FROM clock)
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
        AND e.lifecycle_phase = 'active'
        AND e.ownership_state = 'leased'
        AND e.attempt_index = i.attempt_index
        AND e.ffx_lease_epoch = i.lease_epoch
        -- The flow the caller read still holds; otherwise the dependents would be missed.
        AND e.flow_id IS NOT DISTINCT FROM i.flow_id
        -- After a replay by another program, the slow path handles the count of the earlier end.
        AND (i.flow_id IS NULL OR NOT ffx_replayed_elsewhere(e.raw_fields))
    RETURNING
        i.ord,
        i.flow_id,
        e.partition_key,
        e.execution_id,
        i.attempt_index,
        i.lease_epoch,
        (e.ffx_sequence IS NOT NULL) AS in_sequence,
        e.ffx_namespace,
        e.ffx_instance_tag
),
ended_attempts AS (
    -- Their attempts, ended.
    UPDATE ff_attempt AS a
    SET
        -- include set_attempt_ended: outcome = 'success', at_ms = (SELECT now_ms FROM clock)
    FROM completed AS c
    WHERE
        a.partition_key = ANY (ARRAY[c.partition_key])
        AND a.execution_id = c.execution_id
        AND a.attempt_index = c.attempt_index
        AND a.lease_epoch = c.lease_epoch
        AND a.lease_expires_at_ms > (SELECT now_ms FROM clock)
    RETURNING
        c.ord,
        c.flow_id,
        a.partition_key,
        a.execution_id,
        a.ffx_lease_id::text AS lease_id,
        a.worker_instance_id,
        c.in_sequence,
        c.ffx_namespace,
        c.ffx_instance_tag
),
lease_events AS (
    -- The lease events.
    -- include lease_events: rows = ended_attempts, event_type = 'revoked', at_ms = (SELECT now_ms FROM clock), revoked_by = 'backend'
),
completion_events AS (
    -- The completion events.
    -- include completion_events: rows = ended_attempts, at_ms = (SELECT now_ms FROM clock)
)
SELECT
    a.ord::integer AS ord,
    (SELECT now_ms FROM clock)::bigint AS now_ms,
    a.in_sequence::boolean AS in_sequence
FROM ended_attempts AS a
WHERE
    1 / ((SELECT count(*) FROM completed) = (SELECT count(*) FROM ended_attempts))::integer
    / ((SELECT count(*) FROM completed) >= @at_least::bigint)::integer = 1;

-- name: CompleteOne :many
-- CompleteOne is CompleteExecutions for one execution: by key, without arrays.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim.
-- Locks: L1 waits (the execution's row, UPDATE); L2 waits (the attempt, UPDATE); L7 new. The caller holds L0 of a
-- member.
WITH completed AS (
    -- The execution, ended if the fence held.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'terminal',
        public_state = 'completed',
        attempt_state = 'attempt_terminal',
        result = sqlc.narg(result)::bytea,
        ffx_trace = coalesce(sqlc.narg(trace)::text, e.ffx_trace),
        terminal_at_ms = k.now_ms,
        -- include set_ended: at_ms = k.now_ms
    FROM (
        -- The time of the completion.
        SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
        OFFSET 0
    ) AS k
    WHERE
        e.partition_key = @partition_key::smallint
        AND e.execution_id = @execution_id::uuid
        AND e.lifecycle_phase = 'active'
        AND e.ownership_state = 'leased'
        AND e.attempt_index = @attempt_index::integer
        AND e.ffx_lease_epoch = @lease_epoch::bigint
        AND e.flow_id IS NOT DISTINCT FROM sqlc.narg(flow_id)::uuid
        AND (sqlc.narg(flow_id)::uuid IS NULL OR NOT ffx_replayed_elsewhere(e.raw_fields))
    RETURNING
        k.now_ms,
        (e.ffx_sequence IS NOT NULL) AS in_sequence,
        e.ffx_namespace,
        e.ffx_instance_tag
),
ended_attempt AS (
    -- The attempt, ended.
    UPDATE ff_attempt AS a
    SET
        -- include set_attempt_ended: outcome = 'success', at_ms = c.now_ms
    FROM completed AS c
    WHERE
        a.partition_key = @partition_key::smallint
        AND a.execution_id = @execution_id::uuid
        AND a.attempt_index = @attempt_index::integer
        AND a.lease_epoch = @lease_epoch::bigint
        AND a.lease_expires_at_ms > c.now_ms
    RETURNING
        c.now_ms,
        a.partition_key,
        a.execution_id,
        sqlc.narg(flow_id)::uuid AS flow_id,
        a.ffx_lease_id::text AS lease_id,
        a.worker_instance_id,
        c.in_sequence,
        c.ffx_namespace,
        c.ffx_instance_tag
),
lease_event AS (
    -- The lease event.
    -- include lease_events: rows = ended_attempt, event_type = 'revoked', at_ms = r.now_ms, revoked_by = 'backend'
),
completion_event AS (
    -- The completion event.
    -- include completion_events: rows = ended_attempt, at_ms = r.now_ms
)
SELECT
    0::integer AS ord,
    -- Divides by zero if the execution fits but its attempt does not.
    (c.now_ms / (SELECT count(*) FROM ended_attempt))::bigint AS now_ms,
    c.in_sequence::boolean AS in_sequence
FROM completed AS c
WHERE
    -- Also divides by zero if the execution does not fit and at_least is 1.
    1 / ((SELECT count(*) FROM completed) >= @at_least::bigint)::integer = 1;

-- name: EndSucceeded :exec
-- EndSucceeded writes the success of executions whose fence was checked under their locks.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim.
-- Locks: L1 held; L2 held; L7 new.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@results::bytea[]) AS result,
        nullif(unnest(@traces::text[]), '') AS trace
    LIMIT cardinality(@execution_ids::uuid[])
),
completed AS (
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'terminal',
        public_state = 'completed',
        attempt_state = 'attempt_terminal',
        attempt_index = i.attempt_index,
        result = i.result,
        ffx_trace = coalesce(i.trace, e.ffx_trace),
        terminal_at_ms = @now_ms::bigint,
        -- include set_ended: at_ms = @now_ms::bigint
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        i.attempt_index,
        e.ffx_lease_epoch,
        e.ffx_namespace,
        e.ffx_instance_tag
),
ended_attempts AS (
    UPDATE ff_attempt AS a
    SET
        -- include set_attempt_ended: outcome = 'success', at_ms = @now_ms::bigint
    FROM completed AS c
    WHERE
        a.partition_key = ANY (ARRAY[c.partition_key])
        AND a.execution_id = c.execution_id
        AND a.attempt_index = c.attempt_index
    RETURNING
        a.partition_key,
        a.execution_id,
        -- Another program keeps the id of a lease in raw_fields; the library uses the column.
        CASE
            WHEN a.lease_epoch = c.ffx_lease_epoch THEN a.ffx_lease_id::text
            ELSE a.raw_fields ->> 'lease_id'
        END AS lease_id,
        a.worker_instance_id,
        c.ffx_namespace,
        c.ffx_instance_tag
)
-- include lease_events: rows = ended_attempts, event_type = 'revoked', at_ms = @now_ms::bigint, revoked_by = 'backend'
;

-- name: InsertCompletionEvents :exec
-- InsertCompletionEvents appends one completion event per ended execution, in array order: upstream before downstream.
-- Without now_ms they have the time of the execution's last change, its end by a statement before.
-- Their dependents are resolved already, so the events are inserted as dispatched, except the ones whose dispatched
-- flag is false, which upkeep.DispatchCompletions resolves.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L7 new.
INSERT INTO ff_completion_event (
    partition_key, execution_id, flow_id, outcome, namespace, instance_tag, occurred_at_ms,
    dispatched_at_ms
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    i.outcome,
    e.ffx_namespace,
    e.ffx_instance_tag,
    e.ended_at_ms,
    CASE WHEN i.dispatched THEN e.ended_at_ms END
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@outcomes::text[]) AS outcome,
        unnest(@dispatched::boolean[]) AS dispatched,
        generate_subscripts(@execution_ids::uuid[], 1) AS ord
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        t.ffx_namespace,
        t.ffx_instance_tag,
        coalesce(sqlc.narg(now_ms)::bigint, t.ffx_last_mutation_at_ms) AS ended_at_ms
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
ORDER BY i.ord;
