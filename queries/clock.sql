-- name: GetNow :one
-- GetNow reads the database's clock in milliseconds, or returns now_ms where it is given.
-- An operation of several statements reads it once, after its row locks are held.
--
-- Used by: every operation of more than one statement.
-- Locks: none.
SELECT ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms;
