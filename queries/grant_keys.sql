-- name: ListSigningKeys :many
-- ListSigningKeys reads the keys that may sign, the one to sign with first. The caller takes the first that is a key
-- at all: its id and its secret are what another program stored.
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
-- GetVerifyingKey reads a key that verifies at an instant: an active one, or one that was retired and is still in its
-- grace. No row: there is no such key any more.
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
            -- Retired by another program, which does not say until when: as long after its successor came.
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
