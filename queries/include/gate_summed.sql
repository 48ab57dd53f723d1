SELECT
    count(*) AS found,
    coalesce(sum(j.units) FILTER (WHERE j.held), 0) AS held,
    coalesce(sum(j.units) FILTER (WHERE j.starts), 0) AS started,
    -- Parts of the bounds, each once: then the row is deleted, settled, or has a start of 0.
    coalesce(sum(j.units) FILTER (WHERE NOT j.held AND (j.settled OR NOT j.starts)), 0) AS given_back,
    coalesce(sum(j.units) FILTER (WHERE NOT j.starts AND j.was_started_at_ms IS DISTINCT FROM 0), 0) AS over,
    min(j.started_at_ms) FILTER (WHERE j.starts) AS first_start_ms,
    coalesce(bool_or(j.starts AND j.started_at_ms IS NULL), false) AS not_started,
    count(*) FILTER (
        WHERE (j.held, j.started_at_ms, j.settled) IS DISTINCT FROM (j.was_held, j.was_started_at_ms, false)
    ) AS changes
FROM judged AS j
WHERE j.gate_id = i.gate_id
