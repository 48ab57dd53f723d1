-- Alike executions. Reads shared, and their own values from ${input}. Fair ones have a place and a creation time.
SELECT
    i.partition_key,
    i.execution_id,
    NULL,
    sqlc.arg(lane_id)::text,
    s.required_capabilities,
    0,
    'runnable',
    'unowned',
    'eligible_now',
    'waiting',
    'pending_first_attempt',
    'waiting_for_worker',
    i.priority,
    ${place_ms},
    NULL,
    i.payload,
    s.policy,
    d.document,
    d.document ->> 'namespace',
    d.document -> 'tags' ->> 'cairn.instance_id',
    s.created_at_ms,
    0,
    0,
    0,
    NULL,
    0,
    NULL,
    NULL,
    NULL,
    ${limit_ids},
    ${limit_units},
    NULL,
    ${unique_key},
    ${admitted},
    ${fair_created_at_ms}
FROM ${input} AS i
CROSS JOIN shared AS s
CROSS JOIN LATERAL (
    SELECT coalesce(s.raw_fields, (sqlc.arg(raw_fields)::text || i.own_fields || s.last_field)::jsonb) AS document
    OFFSET 0
) AS d
RETURNING
    partition_key,
    execution_id,
    required_capabilities,
    priority,
    created_at_ms
