-- name: LockSequences :many
-- LockSequences locks sequences, creates missing ones, and assigns places at their ends: counts has the number for
-- each. Returns the last assigned place of each sequence.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: sequences waits (rows in array order). The caller sorts by (partition_key, sequence_id).
INSERT INTO ffx_sequence AS s (partition_key, sequence_id, namespace, key, last_place)
SELECT
    unnest(@partition_keys::smallint[]),
    unnest(@sequence_ids::uuid[]),
    unnest(@namespaces::text[]),
    unnest(@sequence_keys::text[]),
    unnest(@counts::bigint[])
ON CONFLICT (partition_key, sequence_id) DO UPDATE SET
    last_place = s.last_place + excluded.last_place
RETURNING
    s.partition_key,
    s.sequence_id,
    s.last_place;

-- name: DropNewSequences :exec
-- DropNewSequences deletes sequences LockSequences has created and no place was assigned in. Until the transaction
-- ends, other creators of the sequences wait.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: sequences held.
DELETE FROM ffx_sequence AS s
USING (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@sequence_ids::uuid[]) AS sequence_id
) AS i
WHERE
    s.partition_key = ANY (ARRAY[i.partition_key])
    AND s.sequence_id = i.sequence_id
    AND (s.last_place = 0) IS TRUE;

-- name: SeatMembers :many
-- SeatMembers gives executions the caller has just created, as blocked, the places LockSequences assigned. The first of
-- a sequence without other members gets the turn, and is then claimable, delayed or before a gate. foremost: no other
-- execution of the call comes before. Returns the new states.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: sequences held (member rows are new); L1 held (UPDATE; the executions are new).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@sequence_ids::uuid[]) AS sequence_id,
        unnest(@places::bigint[]) AS place,
        unnest(@execution_partition_keys::smallint[]) AS execution_partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@skips::boolean[]) AS skips,
        unnest(@foremost::boolean[]) AS foremost
    LIMIT cardinality(@execution_ids::uuid[])
),
seated AS (
    INSERT INTO ffx_sequence_member (
        partition_key, sequence_id, place, execution_partition_key, execution_id, skips, turn_at_ms
    )
    SELECT
        i.partition_key,
        i.sequence_id,
        i.place,
        i.execution_partition_key,
        i.execution_id,
        i.skips,
        CASE
            WHEN i.foremost AND NOT EXISTS (
                SELECT
                FROM ffx_sequence_member AS m
                WHERE
                    m.partition_key = i.partition_key
                    AND m.sequence_id = i.sequence_id
                OFFSET 0
            ) THEN @now_ms::bigint
        END
    FROM input AS i
    RETURNING
        sequence_id,
        execution_partition_key,
        execution_id,
        turn_at_ms
)
UPDATE ff_exec_core AS e
SET
    ffx_sequence = s.sequence_id,
    eligibility_state = CASE
        WHEN s.turn_at_ms IS NULL THEN e.eligibility_state
        WHEN e.ffx_delay_until_ms > @now_ms::bigint THEN 'not_eligible_until_time'
        WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'eligible_now'
        WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
        ELSE 'blocked_by_quota'
    END,
    public_state = CASE
        WHEN s.turn_at_ms IS NULL THEN e.public_state
        WHEN e.ffx_delay_until_ms > @now_ms::bigint THEN 'delayed'
        WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'waiting'
        ELSE 'rate_limited'
    END,
    blocking_reason = CASE
        WHEN s.turn_at_ms IS NULL THEN e.blocking_reason
        WHEN e.ffx_delay_until_ms > @now_ms::bigint THEN 'waiting_for_delay'
        WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'waiting_for_worker'
        WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
        ELSE 'waiting_for_quota'
    END,
    ffx_gate_id = CASE
        WHEN s.turn_at_ms IS NOT NULL AND (e.ffx_delay_until_ms > @now_ms::bigint) IS NOT TRUE
            THEN coalesce(e.ffx_budget_ids[1], e.ffx_limit_ids[1])
    END,
    deadline_at_ms = CASE
        WHEN s.turn_at_ms IS NOT NULL AND e.ffx_delay_until_ms > @now_ms::bigint
            THEN least(e.ffx_delay_until_ms, CASE WHEN e.ffx_execution_deadline_ms > 0 THEN e.ffx_execution_deadline_ms END)
        ELSE e.deadline_at_ms
    END
FROM seated AS s
WHERE
    e.partition_key = ANY (ARRAY[s.execution_partition_key])
    AND e.execution_id = s.execution_id
RETURNING
    e.partition_key,
    e.execution_id,
    e.public_state;

-- name: ExtendSequence :exec
-- ExtendSequence locks the sequence of an ended member, about to run again, and assigns a place at the end. A missing
-- sequence is created, and a sequence stopped at the member goes on.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: sequences waits (the row, INSERT or UPDATE). The caller holds the execution.
INSERT INTO ffx_sequence AS s (partition_key, sequence_id, namespace, key, last_place)
SELECT
    @partition_key::smallint,
    @sequence_id::uuid,
    coalesce(x.ffx_namespace, ''),
    coalesce(x.raw_fields -> 'ffx_sequence' ->> 'key', ''),
    1
FROM ff_exec_core AS x
WHERE
    x.partition_key = @execution_partition_key
    AND x.execution_id = @execution_id
ON CONFLICT (partition_key, sequence_id) DO UPDATE SET
    last_place = s.last_place + 1,
    stopped_at_ms = CASE WHEN s.stopped_execution_id = @execution_id THEN NULL ELSE s.stopped_at_ms END,
    stopped_partition_key = CASE WHEN s.stopped_execution_id = @execution_id THEN NULL ELSE s.stopped_partition_key END,
    stopped_execution_id = CASE WHEN s.stopped_execution_id = @execution_id THEN NULL ELSE s.stopped_execution_id END;

-- name: RequeueMember :one
-- RequeueMember gives an ended member, about to run again, a place: the former one if still held, otherwise the last,
-- assigned by ExtendSequence. Returns whether the member has the turn.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: sequences held (member rows).
WITH held AS MATERIALIZED (
    -- The former place of the member.
    SELECT m.place
    FROM ffx_sequence_member AS m
    WHERE
        m.partition_key = @partition_key::smallint
        AND m.sequence_id = @sequence_id::uuid
        AND m.execution_id = @execution_id::uuid
),
placed AS MATERIALIZED (
    -- The place, and whether no other member comes before.
    SELECT
        p.place,
        NOT EXISTS (
            SELECT
            FROM ffx_sequence_member AS m
            WHERE
                m.partition_key = @partition_key::smallint
                AND m.sequence_id = @sequence_id::uuid
                AND m.place < p.place
        ) AS turn
    FROM (
        SELECT coalesce((SELECT h.place FROM held AS h), s.last_place) AS place
        FROM ffx_sequence AS s
        WHERE
            s.partition_key = @partition_key::smallint
            AND s.sequence_id = @sequence_id::uuid
    ) AS p
),
added AS (
    -- The member at the last place.
    INSERT INTO ffx_sequence_member (
        partition_key, sequence_id, place, execution_partition_key, execution_id, skips, turn_at_ms
    )
    SELECT
        @partition_key::smallint,
        @sequence_id::uuid,
        p.place,
        x.partition_key,
        x.execution_id,
        coalesce((x.raw_fields -> 'ffx_sequence' ->> 'skips')::boolean, false),
        CASE WHEN p.turn THEN @now_ms::bigint END
    FROM placed AS p
    CROSS JOIN ff_exec_core AS x
    WHERE
        x.partition_key = @execution_partition_key
        AND x.execution_id = @execution_id::uuid
        AND NOT EXISTS (SELECT FROM held)
),
kept AS (
    -- The member at the former place.
    UPDATE ffx_sequence_member AS m
    SET turn_at_ms = CASE WHEN p.turn THEN @now_ms::bigint END
    FROM placed AS p
    WHERE
        m.partition_key = @partition_key::smallint
        AND m.sequence_id = @sequence_id::uuid
        AND m.place = p.place
        AND EXISTS (SELECT FROM held)
)
SELECT p.turn::boolean AS turn
FROM placed AS p;

-- name: LockSequence :one
-- LockSequence locks a sequence and returns whether and where the sequence has stopped. No row: the sequence has no
-- members.
--
-- Used by: operator.ContinueSequence.
-- Locks: sequences waits (FOR UPDATE).
SELECT
    (s.stopped_at_ms IS NOT NULL)::boolean AS stopped,
    coalesce(s.stopped_partition_key, 0)::smallint AS stopped_partition_key,
    s.stopped_execution_id
FROM ffx_sequence AS s
WHERE
    s.partition_key = @partition_key
    AND s.sequence_id = @sequence_id
FOR UPDATE;

-- name: PassOver :exec
-- PassOver removes the member at which a locked sequence stopped. Then call AdvanceSequences.
--
-- Used by: operator.ContinueSequence.
-- Locks: sequences held (UPDATE, DELETE).
WITH continued AS (
    UPDATE ffx_sequence AS s
    SET
        stopped_at_ms = NULL,
        stopped_partition_key = NULL,
        stopped_execution_id = NULL
    WHERE
        s.partition_key = @partition_key
        AND s.sequence_id = @sequence_id
    RETURNING
        s.partition_key,
        s.sequence_id
)
DELETE FROM ffx_sequence_member AS m
USING continued AS c
WHERE
    m.partition_key = c.partition_key
    AND m.sequence_id = c.sequence_id
    AND m.execution_id = @execution_id::uuid;

-- name: AdvanceSequences :many
-- AdvanceSequences gives the first members of sequences their turn, or stops sequences at failed ones. busy: another
-- transaction holds a needed row, and nothing was changed.
--
-- Used by: operator.ContinueSequence, upkeep.AdvanceSequences.
-- Locks: sequences skips (FOR UPDATE, then UPDATE and DELETE); L1 skips (FOR NO KEY UPDATE, then the UPDATE).
SELECT
    i.ord::integer AS ord,
    (NOT ffx_advance_sequence(i.partition_key, i.sequence_id, @now_ms::bigint))::boolean AS busy
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@sequence_ids::uuid[]) AS sequence_id,
        generate_series(0, cardinality(@sequence_ids::uuid[]) - 1) AS ord
    OFFSET 0
) AS i;

-- name: ListTurns :many
-- ListTurns reads the lanes of the claimable first members of sequences, and whether one waits at a gate.
--
-- Used by: operator.ContinueSequence, upkeep.AdvanceSequences.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@sequence_ids::uuid[]) AS sequence_id
    LIMIT cardinality(@sequence_ids::uuid[])
)
SELECT
    e.lane_id,
    (e.eligibility_state = 'eligible_now')::boolean AS claimable,
    (e.ffx_gate_id IS NOT NULL)::boolean AS gated
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.execution_partition_key,
        t.execution_id
    FROM ffx_sequence_member AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.sequence_id = i.sequence_id
    ORDER BY t.place
    LIMIT 1
) AS m
CROSS JOIN LATERAL (
    SELECT
        t.lane_id,
        t.eligibility_state,
        t.ffx_gate_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = m.execution_partition_key
        AND t.execution_id = m.execution_id
        AND t.lifecycle_phase = 'runnable'
) AS e
LIMIT cardinality(@sequence_ids::uuid[]);

-- name: ScanSequenceEnds :many
-- ScanSequenceEnds reads noted ends of members after a position, in the order of writing.
--
-- Used by: upkeep.AdvanceSequences.
-- Locks: none. Spans partitions.
SELECT
    t.id,
    t.partition_key,
    t.sequence_id
FROM ffx_sequence_end AS t
WHERE t.id > @after_id
ORDER BY t.id
LIMIT @page_size::integer;

-- name: GetGated :one
-- GetGated returns whether any execution waits for a budget or a limit: the next member of a sequence may.
--
-- Used by: upkeep.AdvanceSequences.
-- Locks: none. Spans partitions.
SELECT ((
    SELECT true
    FROM ffx_waiting AS w
    ORDER BY w.gate_id
    LIMIT 1
) IS TRUE)::boolean AS gated;

-- name: InsertSequenceEnd :exec
-- InsertSequenceEnd notes a sequence for a look by the background work.
--
-- Used by: operator.ContinueSequence.
-- Locks: L7 new.
INSERT INTO ffx_sequence_end (partition_key, sequence_id)
VALUES (@partition_key, @sequence_id);

-- name: DropSequenceEnds :execrows
-- DropSequenceEnds deletes noted ends whose sequences the caller has looked at.
--
-- Used by: upkeep.AdvanceSequences.
-- Locks: L7 waits (DELETE; another call of the job may delete the same notes).
DELETE FROM ffx_sequence_end AS t
USING (
    SELECT unnest(@ids::bigint[]) AS id
) AS i
WHERE t.id = i.id;

-- name: ListSequences :many
-- ListSequences returns sequences by partition and id after a position, with their first members.
--
-- Passages: sequence_columns.
-- Used by: engine.Sequences.
-- Locks: none. Spans partitions.
SELECT
    -- The columns of a sequence s with the first member; size: up to 1,001 members are counted.
    s.partition_key,
    s.sequence_id,
    s.namespace,
    s.key,
    s.stopped_at_ms,
    coalesce(f.execution_partition_key, 0)::smallint AS first_partition_key,
    coalesce(f.execution_id, '00000000-0000-0000-0000-000000000000')::uuid AS first_execution_id,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM ffx_sequence_member AS m
            WHERE
                m.partition_key = s.partition_key
                AND m.sequence_id = s.sequence_id
            LIMIT 1001
        ) AS n
    )::integer AS size
    FROM ffx_sequence AS s
    LEFT JOIN LATERAL (
    SELECT
        m.execution_partition_key,
        m.execution_id
    FROM ffx_sequence_member AS m
    WHERE
        m.partition_key = s.partition_key
        AND m.sequence_id = s.sequence_id
    ORDER BY m.place
    LIMIT 1
    ) AS f ON true
WHERE (s.partition_key, s.sequence_id) > (@after_partition_key::smallint, @after_sequence_id::uuid)
ORDER BY
    s.partition_key,
    s.sequence_id
LIMIT @page_size::integer;

-- name: GetSequence :one
-- GetSequence returns a sequence with its first member. No row: the sequence has no members.
--
-- Passages: sequence_columns.
-- Used by: engine.DescribeSequence.
-- Locks: none.
SELECT
    -- The columns of a sequence s with the first member; size: up to 1,001 members are counted.
    s.partition_key,
    s.sequence_id,
    s.namespace,
    s.key,
    s.stopped_at_ms,
    coalesce(f.execution_partition_key, 0)::smallint AS first_partition_key,
    coalesce(f.execution_id, '00000000-0000-0000-0000-000000000000')::uuid AS first_execution_id,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM ffx_sequence_member AS m
            WHERE
                m.partition_key = s.partition_key
                AND m.sequence_id = s.sequence_id
            LIMIT 1001
        ) AS n
    )::integer AS size
    FROM ffx_sequence AS s
    LEFT JOIN LATERAL (
    SELECT
        m.execution_partition_key,
        m.execution_id
    FROM ffx_sequence_member AS m
    WHERE
        m.partition_key = s.partition_key
        AND m.sequence_id = s.sequence_id
    ORDER BY m.place
    LIMIT 1
    ) AS f ON true
WHERE
    s.partition_key = @partition_key
    AND s.sequence_id = @sequence_id;

-- name: ListSequenceMembers :many
-- ListSequenceMembers returns the members of a sequence in their order, after a place. found: the execution exists.
--
-- Used by: engine.ListSequenceMembers.
-- Locks: none.
SELECT
    m.place,
    m.execution_partition_key,
    m.execution_id,
    m.skips,
    m.turn_at_ms,
    coalesce(e.kind, '')::text AS kind,
    coalesce(e.public_state, '')::text AS public_state,
    coalesce(e.created_at_ms, 0)::bigint AS created_at_ms,
    (e.public_state IS NOT NULL)::boolean AS found
FROM ffx_sequence_member AS m
LEFT JOIN LATERAL (
    SELECT
        t.public_state,
        coalesce(t.ffx_created_at_ms, t.created_at_ms) AS created_at_ms,
        t.raw_fields ->> 'execution_kind' AS kind
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = m.execution_partition_key
        AND t.execution_id = m.execution_id
    LIMIT 1
) AS e ON true
WHERE
    m.partition_key = @partition_key
    AND m.sequence_id = @sequence_id
    AND m.place > @after_place
ORDER BY m.place
LIMIT @page_size::integer;
