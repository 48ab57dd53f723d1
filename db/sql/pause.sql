-- name: EnsurePause :exec
-- EnsurePause pauses a lane or drains a worker instance. If it is paused already, only the reason changes.
--
-- Used by: engine.PauseLane, engine.DrainWorker.
-- Locks: pauses waits (the row, INSERT).
INSERT INTO ffx_pause AS p (
    subject,
    name,
    paused_at_ms,
    reason
)
VALUES (
    @subject,
    @name,
    ffx_now_ms(sqlc.narg(now_ms)),
    @reason
)
ON CONFLICT (subject, name) DO UPDATE SET
    reason = excluded.reason
WHERE p.reason <> excluded.reason;

-- name: DropPause :execrows
-- DropPause ends the pause of a lane or the drain of a worker instance. 0 rows: there was none.
--
-- Used by: engine.ResumeLane, engine.ResumeWorker.
-- Locks: pauses waits (the row, DELETE).
DELETE FROM ffx_pause AS p
WHERE
    p.subject = @subject
    AND p.name = @name;

-- name: ListPauses :many
-- ListPauses pages through the paused lanes or the drained worker instances in byte order, strictly after a cursor.
--
-- Used by: engine.ListPausedLanes, engine.ListDrainedWorkers.
-- Locks: none.
SELECT
    p.name,
    p.paused_at_ms,
    p.reason
FROM ffx_pause AS p
WHERE
    p.subject = @subject
    AND p.name > @after_name
ORDER BY p.name
LIMIT @page_size::integer;
