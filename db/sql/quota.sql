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

-- name: SetQuotaPolicy :one
-- SetQuotaPolicy replaces the limits of a quota policy. It returns whether the policy exists, and whether FlowFabric works on
-- the database, in which case it changes nothing.
--
-- Used by: engine.SetQuotaPolicy.
-- Locks: L6 waits (the UPDATE).
WITH switch AS (
    SELECT
        ffx_shared() AS shared,
        ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
changed AS (
    UPDATE ff_quota_policy AS q
    SET
        requests_per_window_seconds = @window_seconds::bigint,
        max_requests_per_window = @max_starts::bigint,
        active_concurrency_cap = @max_running::bigint,
        updated_at_ms = s.now_ms
    FROM switch AS s
    WHERE
        q.partition_key = @partition_key::smallint
        AND q.quota_policy_id = @quota_policy_id::text
        AND NOT s.shared
    RETURNING true AS done
)
SELECT
    s.shared::boolean AS shared,
    EXISTS (SELECT FROM changed)::boolean AS changed
FROM switch AS s;

-- name: DeleteQuotaPolicy :one
-- DeleteQuotaPolicy deletes a quota policy. It returns whether the policy existed, and whether FlowFabric works on the
-- database, in which case it deletes nothing.
--
-- Used by: engine.DeleteQuotaPolicy.
-- Locks: L6 waits (the DELETE).
WITH switch AS (SELECT ffx_shared() AS shared),
deleted AS (
    DELETE FROM ff_quota_policy AS q
    USING switch AS s
    WHERE
        q.partition_key = @partition_key::smallint
        AND q.quota_policy_id = @quota_policy_id::text
        AND NOT s.shared
    RETURNING true AS done
)
SELECT
    s.shared::boolean AS shared,
    EXISTS (SELECT FROM deleted)::boolean AS deleted
FROM switch AS s;
