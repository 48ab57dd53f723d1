// Package pgtx runs functions as transactions of Postgres: on a pool, where they are repeated when the server aborts
// them in favour of others, or behind a savepoint of a transaction that somebody else has begun.
//
// What runs by a [Runner] runs at READ COMMITTED, with the settings that the statements of this library are written
// for, local to the transaction. A single statement, and several that need nothing of each other's results, take one
// round trip: the settings travel with them ([InStatement], [InStatements]). So do the statements in the middle of a
// longer transaction ([InOneTrip]).
//
// Errors are the driver's, but for [ErrBusy] and [ContentionError].
package pgtx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/db"
)

// ErrBusy: an impatient transaction met a lock that is held for longer than a moment. Nothing was written.
var ErrBusy = errors.New("held by another transaction")

// ContentionError is the last of the errors by which the server aborted each try in favour of others. Nothing was
// written.
type ContentionError struct {
	Tries int
	Err   error
}

func (e *ContentionError) Error() string { return fmt.Sprintf("after %d tries: %v", e.Tries, e.Err) }

// Unwrap gives the server's error.
func (e *ContentionError) Unwrap() error { return e.Err }

// AcquireError says that the pool had no connection to give, because it was closed or none could be made. Nothing was
// sent.
type AcquireError struct{ Err error }

func (e *AcquireError) Error() string { return e.Err.Error() }

// Unwrap gives the pool's error.
func (e *AcquireError) Unwrap() error { return e.Err }

// Unsent reports whether err came before anything was sent to the server, so that nothing can have been written.
func Unsent(err error) bool {
	_, unacquired := errors.AsType[*AcquireError](err)
	return unacquired || pgconn.SafeToRetry(err)
}

// IsCut reports whether err is that of a connection which was lost, or which the server ended.
func IsCut(err error) bool {
	if _, unacquired := errors.AsType[*AcquireError](err); unacquired || err == nil {
		return false
	}
	switch SQLState(err) {
	case "", sqlAdminShutdown, sqlCrashShutdown:
		return true
	}
	return false
}

// Runner begins transactions on a pool. Its copies are runners too, which share what it learns of the connections.
type Runner struct {
	pool      *pgxpool.Pool
	impatient bool

	// explicit: connections may default to another isolation level, so whatever is sent at once says which one it wants.
	explicit *atomic.Bool
}

// NewRunner returns a runner on a pool.
func NewRunner(pool *pgxpool.Pool) Runner { return Runner{pool: pool, explicit: new(atomic.Bool)} }

// On returns r on another pool of the same database.
func (r Runner) On(pool *pgxpool.Pool) Runner {
	r.pool = pool
	return r
}

// Impatient returns r for transactions that must not wait for others: a lock that is held for longer than the moment
// that the commit of a neighbour takes ends them with [ErrBusy], without another try.
func (r Runner) Impatient() Runner {
	r.impatient = true
	return r
}

// IsImpatient says whether r came from [Runner.Impatient].
func (r *Runner) IsImpatient() bool { return r.impatient }

// AtOnce returns a connection on which each statement is a transaction of its own, in one round trip and in one try.
func (r *Runner) AtOnce() db.DBTX { return implicitTx{r} }

// InTx runs fn in a transaction that it begins and commits: once in the end, after tries that the server aborted. fn
// is called for each try, uses nothing but its transaction, and does nothing slow.
func InTx[T any](ctx context.Context, r *Runner, fn func(tx pgx.Tx) (T, error)) (T, error) {
	for try := 1; ; try++ {
		result, err := inTx(ctx, r, fn)
		if err == nil {
			return result, nil
		}
		if err = r.pause(ctx, try, err); err != nil {
			return result, err
		}
	}
}

func inTx[T any](ctx context.Context, r *Runner, fn func(tx pgx.Tx) (T, error)) (T, error) {
	var none T
	tx, err := r.begin(ctx)
	if err != nil {
		return none, err
	}
	// Without effect after the commit; with a context of its own, so that a cancelled call does not
	// leave the transaction to the pool.
	defer Rollback(tx)
	result, err := fn(tx)
	if err != nil {
		return none, err
	}
	if err := tx.Commit(ctx); err != nil {
		return none, err
	}
	return result, nil
}

// InSavepoint runs fn behind a savepoint of somebody's transaction, once: all of fn happens there, or none.
func InSavepoint[T any](ctx context.Context, outer pgx.Tx, fn func(tx pgx.Tx) (T, error)) (T, error) {
	var none T
	savepoint, err := outer.Begin(ctx)
	if err != nil {
		return none, err
	}
	defer Rollback(savepoint)
	result, err := fn(savepoint)
	if err != nil {
		return none, err
	}
	if err := savepoint.Commit(ctx); err != nil {
		return none, err
	}
	return result, nil
}

// savepoint is unlike the names that the driver gives.
const (
	savepoint        = "ffx_operation"
	releaseSavepoint = "release savepoint " + savepoint
)

// setSavepoint tells by set when it is set.
func setSavepoint(ctx context.Context, set *bool) Step {
	return func(conn db.DBTX) error {
		_, err := conn.Exec(ctx, "savepoint "+savepoint)
		*set = err == nil
		return err
	}
}

func rollbackToSavepoint(outer pgx.Tx) {
	if outer.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	// One message: before the rollback the server parses nothing else.
	_, _ = outer.Exec(ctx, "rollback to savepoint "+savepoint+"; "+releaseSavepoint, pgx.QueryExecModeSimpleProtocol)
}

// InStatement is [InTx] for one statement, or one batch of them, in one round trip. fn is called for each try.
func InStatement[T any](ctx context.Context, r *Runner, fn func(conn db.DBTX) (T, error)) (T, error) {
	for try := 1; ; try++ {
		result, err := fn(implicitTx{r})
		if err == nil {
			return result, nil
		}
		if err = r.pause(ctx, try, err); err != nil {
			return result, err
		}
	}
}

// InStatements is [InStatement] for several statements, which need nothing of each other's results: they travel in one
// round trip and are committed together, or none is. begin is called for each try.
func InStatements(ctx context.Context, r *Runner, begin func() []Step) error {
	for try := 1; ; try++ {
		err := InOneTrip(ctx, implicitTx{r}, begin()...)
		if err == nil {
			return nil
		}
		if err = r.pause(ctx, try, err); err != nil {
			return err
		}
	}
}

// Rollback rolls a transaction back whose context may have ended. After a commit it has no effect.
func Rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

const beginReadCommitted = "begin isolation level read committed"

func (r *Runner) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return nil, &AcquireError{err}
	}
	return conn, nil
}

func (r *Runner) begin(ctx context.Context) (pgx.Tx, error) {
	conn, err := r.acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginReadCommitted + ";" + r.settings(conn.Conn(), false)})
	if err != nil {
		conn.Release()
		return nil, err
	}
	return pooledTx{tx, conn}, nil
}

// pooledTx is a transaction that gives its connection back to the pool when it ends. After a commit that failed the
// [Rollback] that follows does: until then the connection tells whether it was lost, and is nobody else's.
type pooledTx struct {
	pgx.Tx
	conn *pgxpool.Conn
}

func (t pooledTx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	if err == nil {
		t.conn.Release()
	}
	return err
}

func (t pooledTx) Rollback(ctx context.Context) error {
	defer t.conn.Release()
	return t.Tx.Rollback(ctx)
}

const (
	maxTries   = 3
	firstPause = 5 * time.Millisecond
)

// pause returns nil once a try that ended with err may be repeated: three tries in all, 5 and 10 milliseconds apart,
// plus up to half of that by chance. Else it returns how the transaction has ended.
func (r *Runner) pause(ctx context.Context, try int, err error) error {
	switch {
	case r.impatient && SQLState(err) == sqlLockNotAvailable:
		return ErrBusy
	case !isConflict(err):
		return err
	case try == maxTries:
		return &ContentionError{Tries: maxTries, Err: err}
	}
	pause := firstPause << (try - 1)
	pause += time.Duration(rand.Int64N(int64(pause) / 2))
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pause):
		return nil
	}
}

// SQLSTATEs that decide whether a transaction is repeated, and how.
const (
	sqlActiveTransaction    = "25001"
	sqlSerializationFailure = "40001"
	sqlDeadlockDetected     = "40P01"
	sqlLockNotAvailable     = "55P03"
	sqlAdminShutdown        = "57P01"
	sqlCrashShutdown        = "57P02"
)

// isConflict says whether the server aborted a transaction in favour of another; it may be repeated.
func isConflict(err error) bool {
	switch SQLState(err) {
	case sqlSerializationFailure, sqlDeadlockDetected, sqlLockNotAvailable:
		return true
	}
	return false
}

// SQLState returns the SQLSTATE of a server's error, "" when err is none.
func SQLState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}
