-- name: GetNow :one
-- GetNow returns now_ms if given, otherwise the database's clock in milliseconds. An operation of several statements
-- reads the time once, after locking its rows.
--
-- Used by: engine.Now, engine.Claim, engine.Claimer.Claim, engine.Claimer.CompleteAndClaim, engine.CreateExecution,
-- engine.CreateExecutions, engine.CreateFlow, upkeep.ExpireLeases, upkeep.ExpireAttempts, upkeep.ExpireDeadlines,
-- upkeep.RepairQueue, interop.VerifyGrant, upkeep.CancelSiblings,
-- upkeep.RepairGroups, upkeep.ResumeCallers.
-- Locks: none.
SELECT ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms;
