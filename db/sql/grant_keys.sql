-- name: ListSigningKeys :many
-- ListSigningKeys reads the keys for signing, the preferred one first. The caller takes the first valid key: ids and
-- secrets are as stored by another program.
--
-- Used by: interop.IssueClaimGrant, interop.ClaimForWorker, interop.IssueReclaimGrant, operator.ReissueToken.
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
-- GetVerifyingKey reads a key that verifies at an instant: an active key, or a retired one within the grace. No row:
-- there is no such key, or no longer.
--
-- Passages: key_verifies_until.
-- Used by: interop.VerifyGrant, interop.ClaimExecution, interop.ClaimFromResumeGrant,
-- interop.ReclaimExecution.
-- Locks: none.
SELECT k.secret
FROM ff_waitpoint_hmac AS k
WHERE
    k.kid = @kid
    AND (
        k.active
        OR @now_ms::bigint < (
            -- Until when a retired key k verifies.
            coalesce(
                k.ffx_verify_until_ms,
                -- Retired by another program, which stores no end of the grace: the grace lasts this long from the arrival of the
                -- next key.
                coalesce(
                    (
                        SELECT min(s.rotated_at_ms)
                        FROM ff_waitpoint_hmac AS s
                        WHERE s.rotated_at_ms > k.rotated_at_ms
                    ),
                    k.rotated_at_ms
                ) + @grace_ms::bigint
            )
        )
    );

-- name: ListVerifyingKeys :many
-- ListVerifyingKeys reads the keys that verify at the time of the call, the newest first, and for how much longer each
-- does. left_ms has the largest value for a key that verifies until a rotation.
--
-- Passages: key_verifies_until.
-- Used by: engine.SignalWaitpoint, engine.VerifyWaitpoint.
-- Locks: none.
SELECT
    v.kid,
    v.secret,
    coalesce(v.left_ms, 9223372036854775807)::bigint AS left_ms
FROM (
    SELECT
        k.kid,
        k.secret,
        k.rotated_at_ms,
        CASE
            WHEN NOT k.active THEN (
                -- Until when a retired key k verifies.
                coalesce(
                    k.ffx_verify_until_ms,
                    -- Retired by another program, which stores no end of the grace: the grace lasts this long from the arrival of the
                    -- next key.
                    coalesce(
                        (
                            SELECT min(s.rotated_at_ms)
                            FROM ff_waitpoint_hmac AS s
                            WHERE s.rotated_at_ms > k.rotated_at_ms
                        ),
                        k.rotated_at_ms
                    ) + @grace_ms::bigint
                )
            ) - ffx_now_ms(sqlc.narg(now_ms))
        END AS left_ms
    FROM ff_waitpoint_hmac AS k
    ORDER BY
        k.rotated_at_ms DESC,
        k.kid
    LIMIT 1000
) AS v
WHERE (v.left_ms <= 0) IS NOT TRUE
ORDER BY
    v.rotated_at_ms DESC,
    v.kid;
