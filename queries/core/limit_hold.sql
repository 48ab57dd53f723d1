-- name: HoldLimitKey :one
-- HoldLimitKey holds a key of a limit, so that nothing is admitted there before an instant. Of two ends the later one
-- stays, with its author. An instant that has passed ends the hold. A given execution has to have the limit, in its
-- namespace. There is one row: named is false if the execution does not have the limit, known if the limit does not
-- exist, and near if the instant is more than max_hold_ms ahead; then nothing changes. hold_until_ms is the end in
-- force, 0 if the key is not held.
--
-- An admission at the key locks its row first and reads the end under the lock. So after this statement nothing is
-- admitted until the commit, and afterwards nothing until the end.
--
-- Used by: limit.Hold.
-- Locks: gates waits (INSERT or UPDATE of the key).
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
holder AS MATERIALIZED (
    -- The namespace of the limit, and whether the given execution has the limit.
    SELECT
        coalesce(e.namespace, @namespace::text) AS namespace,
        coalesce(e.named, sqlc.narg(execution_id)::uuid IS NULL) AS named
    FROM clock AS c
    LEFT JOIN LATERAL (
        SELECT
            t.ffx_namespace AS namespace,
            coalesce(t.raw_fields -> 'ffx_limits' @> jsonb_build_array(jsonb_build_object('name', @limit_name::text)), false) AS named
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = sqlc.narg(partition_key)::smallint
            AND t.execution_id = sqlc.narg(execution_id)::uuid
        LIMIT 1
    ) AS e ON true
),
rule AS MATERIALIZED (
    -- The limit and the id of the key.
    SELECT
        l.namespace,
        l.name,
        encode(
            substring(sha256(
                convert_to(l.namespace, 'UTF8') || '\x00' || convert_to(l.name, 'UTF8') || '\x00' || convert_to(@key::text, 'UTF8') || '\x00'
            ) FOR 16),
            'hex'
        )::uuid AS gate_id
    FROM holder AS h
    CROSS JOIN LATERAL (
        SELECT
            t.namespace,
            t.name
        FROM ffx_limit AS t
        WHERE
            t.namespace = h.namespace
            AND t.name = @limit_name::text
        LIMIT 1
    ) AS l
    WHERE h.named
),
held AS (
    -- The key. The end of a hold needs no new row.
    INSERT INTO ffx_gate AS g (
        partition_key, gate_id, namespace, limit_name, key, used_at_ms, hold_until_ms, hold_since_ms, hold_by
    )
    SELECT
        get_byte(uuid_send(r.gate_id), 0),
        r.gate_id,
        r.namespace,
        r.name,
        @key::text,
        c.now_ms,
        n.until_ms,
        CASE WHEN n.until_ms IS NOT NULL THEN c.now_ms END,
        CASE WHEN n.until_ms IS NOT NULL THEN @hold_by::text END
    FROM rule AS r
    CROSS JOIN clock AS c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN sqlc.arg(until_ms)::bigint > c.now_ms THEN sqlc.arg(until_ms)::bigint END AS until_ms
    ) AS n
    WHERE
        sqlc.arg(until_ms)::bigint <= c.now_ms + sqlc.arg(max_hold_ms)::bigint
        AND (
            n.until_ms IS NOT NULL
            OR EXISTS (
                SELECT
                FROM ffx_gate AS t
                WHERE
                    t.partition_key = get_byte(uuid_send(r.gate_id), 0)
                    AND t.gate_id = r.gate_id
                OFFSET 0
            )
        )
    ON CONFLICT ON CONSTRAINT ffx_gate_pkey DO UPDATE
    SET
        hold_until_ms = CASE WHEN excluded.hold_until_ms IS NOT NULL THEN greatest(g.hold_until_ms, excluded.hold_until_ms) END,
        hold_since_ms = CASE WHEN g.hold_until_ms > excluded.hold_since_ms THEN g.hold_since_ms ELSE excluded.hold_since_ms END,
        hold_by = CASE WHEN g.hold_until_ms >= excluded.hold_until_ms THEN g.hold_by ELSE excluded.hold_by END
    RETURNING coalesce(g.hold_until_ms, 0) AS hold_until_ms
)
SELECT
    h.named::boolean AS named,
    (r.gate_id IS NOT NULL)::boolean AS known,
    (sqlc.arg(until_ms)::bigint <= c.now_ms + sqlc.arg(max_hold_ms)::bigint)::boolean AS near,
    coalesce(r.gate_id, CAST('00000000-0000-0000-0000-000000000000' AS uuid))::uuid AS gate_id,
    coalesce((SELECT o.hold_until_ms FROM held AS o), 0)::bigint AS hold_until_ms
FROM holder AS h
CROSS JOIN clock AS c
LEFT JOIN rule AS r ON true;

-- name: WithdrawAdmissions :one
-- WithdrawAdmissions makes executions wait at a held key again that have a place there and that no worker has claimed,
-- at most max_items, and returns how many it found. Locked ones are skipped: a claim is starting them.
--
-- The caller has locked the key by an earlier statement, so this one sees all admissions.
--
-- Used by: limit.Hold.
-- Locks: L1 skips (rows FOR NO KEY UPDATE). Spans partitions.
WITH placed AS (
    -- The executions, locked.
    SELECT
        e.partition_key,
        e.execution_id
    FROM ffx_gate_use AS u
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = u.execution_partition_key
            AND t.execution_id = u.execution_id
            AND t.lifecycle_phase = 'runnable'
            AND t.eligibility_state = 'eligible_now'
            AND t.ffx_admitted
            AND u.gate_id = ANY (t.ffx_limit_ids)
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
    WHERE
        u.partition_key = @gate_partition_key
        AND u.gate_id = @gate_id
        AND NOT u.settled
    LIMIT @max_items::integer
),
withdrawn AS (
    UPDATE ff_exec_core AS e
    SET
        eligibility_state = 'blocked_by_quota',
        public_state = 'rate_limited',
        blocking_reason = 'waiting_for_quota',
        ffx_gate_id = @gate_id,
        ffx_admitted = NULL,
        ffx_last_mutation_at_ms = ffx_now_ms(sqlc.narg(now_ms))
    FROM placed AS p
    WHERE
        e.partition_key = ANY (ARRAY[p.partition_key])
        AND e.execution_id = p.execution_id
)
SELECT count(*) AS found
FROM placed AS p;
