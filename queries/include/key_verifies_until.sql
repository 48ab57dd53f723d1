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
