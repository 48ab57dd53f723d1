package pgtx

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/db"
)

// In a caller's transaction the statements of this library need its planner settings as much as in a transaction of the
// library: with old statistics, or settings made for a report, a plan may read a table for each of a thousand rows. So
// they run between two statements: the first saves and replaces the caller's settings, and the second restores them.
// Both travel with statements sent anyway, and so does the savepoint. A failure in between goes back to an earlier
// savepoint, or fails the transaction: then the server restores the caller's settings.

// planned are the settings for a caller's transaction. enable_nestloop and the later ones are on by default, and only a
// caller turns them off.
var planned = [...]struct{ name, value string }{
	{"plan_cache_mode", "force_generic_plan"},
	{"jit", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_seqscan", "off"},
	{"enable_bitmapscan", "off"},
	{"enable_nestloop", "on"},
	{"enable_indexscan", "on"},
	{"enable_indexonlyscan", "on"},
}

// callersSettings keeps the settings of the caller, and of an operation around this one, in the meantime. It has no
// value outside.
const callersSettings = "ffx.callers_settings"

var (
	takeSettings = newTakeSettings("")

	// takeShortSettings also limits the waits for locks, as [Runner.ShortWait] does.
	takeShortSettings = newTakeSettings(shortLockWait)

	setPlanned = "-- set the planner settings\nselect " + strings.Join(plannedSettings(), ", ")

	// The function in FROM returns all its rows before restoring the first setting.
	putBackSettings = "-- put the caller's planner settings back\nselect set_config(s.key, s.value, true) from json_each_text(current_setting('" + callersSettings + "')::json) as s"
)

func newTakeSettings(lockTimeout string) string {
	kept := []string{"'" + callersSettings + "'", "coalesce(current_setting('" + callersSettings + "', true), '')"}
	for _, p := range planned {
		kept = append(kept, "'"+p.name+"'", "current_setting('"+p.name+"')")
	}
	set := append([]string{"set_config('" + callersSettings + "', s.kept, true)"}, plannedSettings()...)
	if lockTimeout != "" {
		kept = append(kept, "'lock_timeout'", "current_setting('lock_timeout')")
		set = append(set, strings.TrimSpace(atMost("lock_timeout", lockTimeout)))
	}
	// Saved below, before anything is set above.
	return "-- keep the caller's planner settings\nselect " + strings.Join(set, ", ") +
		" from (select json_build_object(" + strings.Join(kept, ", ") + ")::text as kept offset 0) as s"
}

func plannedSettings() []string {
	var set []string
	for _, p := range planned {
		set = append(set, "set_config('"+p.name+"', '"+p.value+"', true)")
	}
	return set
}

// execute is a step without results.
func execute(ctx context.Context, sql string) Step {
	return func(conn db.DBTX) error {
		_, err := conn.Exec(ctx, sql)
		return err
	}
}

// InCallers runs fn once behind a savepoint of a caller's transaction, with the planner settings of this library. All
// of fn happens, or nothing, and the caller's settings are the same afterwards. fn must neither commit nor roll back
// its transaction. The savepoint travels with the first statements of fn. If one of these can't be parsed, the caller's
// transaction may fail with it.
func InCallers[T any](ctx context.Context, outer pgx.Tx, fn func(tx pgx.Tx) (T, error)) (T, error) {
	var none T
	if err := Refusal(outer); err != nil {
		return none, err
	}
	tx, released := &openingTx{Tx: outer}, false
	defer func() { // also after a panic
		if tx.set && !released {
			rollbackToSavepoint(outer)
		}
	}()
	result, err := fn(tx)
	if err != nil {
		return none, err
	}
	if !tx.opened {
		return result, nil
	}
	if err := InOneTrip(ctx, outer, execute(ctx, putBackSettings), execute(ctx, releaseSavepoint)); err != nil {
		return none, err
	}
	released = true
	return result, nil
}

// InCallersAtOnce is [InCallers] for steps that don't need each other's results and fail only by an error of the
// server. The steps and the release take one round trip; after an error another one goes back to the savepoint. A
// transaction that had failed before stays failed. A statement that cannot be parsed, for example because a table is
// missing, may fail before the savepoint, and the transaction with it.
func InCallersAtOnce(ctx context.Context, outer pgx.Tx, steps ...Step) error {
	return inCallersAtOnce(ctx, outer, takeSettings, steps)
}

// InCallersBriefly is [InCallersAtOnce] for statements that must not wait for others, as [Runner.ShortWait]: after a
// moment at a lock the server's error is [IsLocked].
func InCallersBriefly(ctx context.Context, outer pgx.Tx, steps ...Step) error {
	return inCallersAtOnce(ctx, outer, takeShortSettings, steps)
}

// IsLocked reports whether a statement waited for a lock longer than allowed.
func IsLocked(err error) bool { return SQLState(err) == sqlLockNotAvailable }

func inCallersAtOnce(ctx context.Context, outer pgx.Tx, settings string, steps []Step) error {
	if err := Refusal(outer); err != nil {
		return err
	}
	set := false
	all := append([]Step{setSavepoint(ctx, &set), execute(ctx, settings)}, steps...)
	err := InOneTrip(ctx, outer, append(all, execute(ctx, putBackSettings), execute(ctx, releaseSavepoint))...)
	if err != nil && set && outer.Conn().PgConn().TxStatus() == 'E' {
		rollbackToSavepoint(outer)
	}
	return err
}

// Callers returns a connection for read-only statements of this library without locks. Each goes to a caller's
// transaction in one round trip, with the planner settings of this library, and without a savepoint.
func Callers(tx pgx.Tx) db.DBTX { return callersTx{tx} }

type callersTx struct{ tx pgx.Tx }

// ReadInCallers is [Callers] for several statements, which share one round trip.
func ReadInCallers(ctx context.Context, tx pgx.Tx, steps ...Step) error {
	if err := Refusal(tx); err != nil {
		return err
	}
	all := append([]Step{execute(ctx, takeSettings)}, steps...)
	return InOneTrip(ctx, tx, append(all, execute(ctx, putBackSettings))...)
}

func (c callersTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return tagOf(c.Query(ctx, sql, args...))
}

func (c callersTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	var batch pgx.Batch
	batch.Queue(takeSettings)
	batch.Queue(sql, args...)
	batch.Queue(putBackSettings)
	results := c.tx.SendBatch(ctx, &batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // says the same
		return nil, err
	}
	return rowsOf(results)
}

func (c callersTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return rowOf(c.Query(ctx, sql, args...))
}
