-- name: ListSigningKeys :many
-- ListSigningKeys reads the keys that may sign, the preferred one first. The caller takes the first valid key: ids
-- and secrets are as another program stored them.
--
-- Used by: engine.IssueClaimGrant, engine.ClaimForWorker, engine.IssueReclaimGrant.
-- Locks: none.
SELECT
    k.kid,
    k.secret
FROM ff_waitpoint_hmac AS k
WHERE k.active
ORDER BY
    k.rotated_at_ms DESC,
    k.kid
LIMIT 16;

-- name: GetVerifyingKey :one
-- GetVerifyingKey reads a key that verifies at an instant: an active key, or a retired one that is still in its
-- grace. No row: there is no such key, or no longer.
--
-- Used by: engine.VerifyGrant, engine.ClaimExecution, engine.ClaimFromResumeGrant,
-- engine.ReclaimExecution.
-- Locks: none.
SELECT k.secret
FROM ff_waitpoint_hmac AS k
WHERE
    k.kid = @kid
    AND (
        k.active
        OR @now_ms::bigint < coalesce(
            k.ffx_verify_until_ms,
            -- Retired by another program, which stores no end of the grace: it lasts this long from the arrival of
            -- its successor.
            coalesce(
                (
                    SELECT min(s.rotated_at_ms)
                    FROM ff_waitpoint_hmac AS s
                    WHERE s.rotated_at_ms > k.rotated_at_ms
                ),
                k.rotated_at_ms
            ) + @grace_ms::bigint
        )
    );
