-- name: ListJobs :many
-- ListJobs returns the background jobs with a holder so far, by name. held_until_ms is 0 for a released job. due_at_ms is the
-- instant of the first due item, past or future; the last possible instant if there is none, or if no index can find one. The
-- table has a row for each job.
--
-- Used by: operator.Jobs.
-- Locks: none. Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
)
SELECT
    a.name,
    a.holder,
    a.held_until_ms,
    (a.held_until_ms > (SELECT now_ms FROM clock))::boolean AS held,
    a.succeeded_at_ms,
    a.failed_at_ms,
    coalesce(a.error, '')::text AS error,
    coalesce(d.due_at_ms, 9223372036854775807)::bigint AS due_at_ms
FROM ffx_job AS a
CROSS JOIN LATERAL (
    -- include job_due
) AS d
ORDER BY a.name;
