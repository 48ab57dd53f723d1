-- name: InsertQuotaPolicy :one
-- InsertQuotaPolicy creates a quota policy that does not exist. It returns whether it did, and whether FlowFabric works on
-- the database, in which case it did not.
--
-- Used by: engine.CreateQuotaPolicy.
-- Locks: L6 waits (the INSERT, for another one of the same id).
WITH switch AS (
    SELECT
        ffx_shared() AS shared,
        ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
inserted AS (
    INSERT INTO ff_quota_policy (
        partition_key, quota_policy_id, requests_per_window_seconds, max_requests_per_window, active_concurrency_cap,
        created_at_ms, updated_at_ms
    )
    SELECT
        @partition_key::smallint,
        @quota_policy_id::text,
        @window_seconds::bigint,
        @max_starts::bigint,
        @max_running::bigint,
        s.now_ms,
        s.now_ms
    FROM switch AS s
    WHERE NOT s.shared
    ON CONFLICT ON CONSTRAINT ff_quota_policy_pkey DO NOTHING
    RETURNING true AS done
)
SELECT
    s.shared::boolean AS shared,
    EXISTS (SELECT FROM inserted)::boolean AS inserted
FROM switch AS s;

-- name: GetQuotaPolicy :one
-- GetQuotaPolicy returns the limits of a quota policy. No row: it does not exist.
--
-- Used by: engine.QuotaPolicy.
-- Locks: none.
SELECT
    q.requests_per_window_seconds,
    q.max_requests_per_window,
    q.active_concurrency_cap,
    q.created_at_ms
FROM ff_quota_policy AS q
WHERE
    q.partition_key = @partition_key::smallint
    AND q.quota_policy_id = @quota_policy_id::text;
