-- The newest valid key, and the token signed with the key for a waitpoint of an execution.
SELECT
    k.kid,
    k.kid || ':' || ffx_signature(
        k.secret, concat_ws(':', k.kid, '{fp:' || @partition_key::smallint || '}', @execution_id::uuid, @waitpoint_id::uuid)
    ) AS token
FROM ff_waitpoint_hmac AS k
WHERE
    k.active
    AND octet_length(k.secret) = 32
    AND k.kid COLLATE "C" ~ '^[!-9;-~]{1,64}$'
ORDER BY
    k.rotated_at_ms DESC,
    k.kid
LIMIT 1
