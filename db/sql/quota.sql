-- name: InsertQuotaPolicy :execrows
-- InsertQuotaPolicy creates a quota policy. No row: the policy exists.
--
-- Used by: interop.CreateQuotaPolicy.
-- Locks: L6 waits (the INSERT, for another one of the same id).
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
FROM (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms) AS s
ON CONFLICT ON CONSTRAINT ff_quota_policy_pkey DO NOTHING;

-- name: GetQuotaPolicy :one
-- GetQuotaPolicy returns the limits of a quota policy. No row: the policy does not exist.
--
-- Used by: interop.GetQuotaPolicy.
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

-- name: SetQuotaPolicy :execrows
-- SetQuotaPolicy replaces the limits of a quota policy. No row: the policy does not exist.
--
-- Used by: interop.SetQuotaPolicy.
-- Locks: L6 waits (the UPDATE).
UPDATE ff_quota_policy AS q
SET
    requests_per_window_seconds = @window_seconds::bigint,
    max_requests_per_window = @max_starts::bigint,
    active_concurrency_cap = @max_running::bigint,
    updated_at_ms = s.now_ms
FROM (SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms) AS s
WHERE
    q.partition_key = @partition_key::smallint
    AND q.quota_policy_id = @quota_policy_id::text;

-- name: DeleteQuotaPolicy :execrows
-- DeleteQuotaPolicy deletes a quota policy. No row: the policy does not exist.
--
-- Used by: interop.DeleteQuotaPolicy.
-- Locks: L6 waits (the DELETE).
DELETE FROM ff_quota_policy AS q
WHERE
    q.partition_key = @partition_key::smallint
    AND q.quota_policy_id = @quota_policy_id::text;
