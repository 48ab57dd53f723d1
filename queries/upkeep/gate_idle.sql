-- name: ListIdleGates :many
-- ListIdleGates returns the next page of keys of limits and quota policies in the order of their ids. due: nothing has been
-- admitted there for idle_ms and the key is not held, or as many admissions as crowded were not counted since, and some may count no more.
--
-- Used by: upkeep.ForgetLimitKeys.
-- Locks: none. Spans partitions.
SELECT
    g.partition_key,
    g.gate_id,
    (
        greatest(g.used_at_ms, g.hold_until_ms) <= ffx_now_ms(sqlc.narg(now_ms)) - @idle_ms::bigint
        OR greatest(g.held, g.started) >= @crowded::bigint
    )::boolean AS due
FROM ffx_gate AS g
WHERE (g.partition_key, g.gate_id) > (@after_partition_key::smallint, @after_gate_id::uuid)
ORDER BY
    g.partition_key,
    g.gate_id
LIMIT @page_size::integer;

-- name: DropIdleGates :execrows
-- DropIdleGates deletes keys of limits and quota policies the caller has locked and found without admissions, unless an
-- execution waits there or the key is held.
--
-- Used by: upkeep.ForgetLimitKeys.
-- Locks: gates held (DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@gate_ids::uuid[]) AS gate_id
)
DELETE FROM ffx_gate AS g
USING input AS i
WHERE
    g.partition_key = ANY (ARRAY[i.partition_key])
    AND g.gate_id = i.gate_id
    AND (g.hold_until_ms > ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
    AND NOT EXISTS (
        SELECT
        FROM ffx_waiting AS w
        WHERE w.gate_id = i.gate_id
        OFFSET 0
    );
