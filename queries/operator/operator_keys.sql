-- name: LockKeys :exec
-- LockKeys keeps other transactions from writing the keystore until the end of the caller's transaction. Readers don't
-- wait.
--
-- Used by: operator.SeedKey, operator.RotateKey, upkeep.SweepWaits.
-- Locks: keystore waits (the table SHARE ROW EXCLUSIVE: the set of rows decides).
LOCK TABLE ff_waitpoint_hmac IN SHARE ROW EXCLUSIVE MODE;

-- name: ListKeys :many
-- ListKeys lists the keys without their secrets, the newest first. usable: the secret has the right length.
--
-- Used by: operator.Keys, operator.SeedKey, operator.RotateKey.
-- Locks: none.
SELECT
    k.kid,
    k.active,
    k.rotated_at_ms,
    k.ffx_verify_until_ms,
    (octet_length(k.secret) = 32)::boolean AS usable,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM ff_waitpoint_hmac AS k
ORDER BY
    k.rotated_at_ms DESC,
    k.kid
LIMIT 1000;

-- name: GetKeySecret :one
-- GetKeySecret reads the secret of a key. No row: there is no such key.
--
-- Used by: operator.SeedKey, operator.RotateKey.
-- Locks: none.
SELECT k.secret
FROM ff_waitpoint_hmac AS k
WHERE k.kid = @kid;

-- name: InsertKey :exec
-- InsertKey adds a key for signing from now on, with a time after every other key's, whatever the clock says.
--
-- Used by: operator.SeedKey, operator.RotateKey.
-- Locks: keystore held.
INSERT INTO ff_waitpoint_hmac (kid, secret, rotated_at_ms, active)
VALUES (
    @kid,
    @secret,
    greatest(ffx_now_ms(sqlc.narg(now_ms)), (SELECT coalesce(max(k.rotated_at_ms), 0) + 1 FROM ff_waitpoint_hmac AS k)),
    true
);

-- name: RetireKeys :exec
-- RetireKeys lets the active keys sign no longer. Retired keys verify until their grace is over.
--
-- Used by: operator.RotateKey.
-- Locks: keystore held.
UPDATE ff_waitpoint_hmac AS k
SET
    active = false,
    ffx_verify_until_ms = ffx_now_ms(sqlc.narg(now_ms)) + @grace_ms::bigint
WHERE k.active;

-- name: DropExpiredKeys :execrows
-- DropExpiredKeys deletes the retired keys whose grace is over.
--
-- Used by: operator.RotateKey, upkeep.SweepWaits.
-- Locks: keystore held.
DELETE FROM ff_waitpoint_hmac AS k
WHERE
    NOT k.active
    AND k.ffx_verify_until_ms <= ffx_now_ms(sqlc.narg(now_ms));
