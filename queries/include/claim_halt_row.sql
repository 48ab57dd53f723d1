SELECT
    -- No execution: why the claim halts.
    CAST('00000000-0000-0000-0000-000000000000' AS uuid), '', CAST(-1 AS smallint),
    CAST('00000000-0000-0000-0000-000000000000' AS uuid), NULL, 0, 0, CAST('00000000-0000-0000-0000-000000000000' AS uuid),
    '', 0, 0, 0, NULL, '', CAST(NULL AS jsonb), 0, 0, 0, CAST(NULL AS uuid[]), NULL, h.subject
FROM halted AS h;
