// Package pgtx runs functions as transactions of Postgres: on a pool, with retries when the server aborts them in
// favour of others, or behind a savepoint of a caller's transaction.
//
// A [Runner] runs transactions at READ COMMITTED, with settings for the statements of this library, local to the
// transaction. A single statement takes one round trip, and so do several statements without use of each other's
// results: the settings travel with them ([InStatement], [InStatements]). So do statements in the middle of a longer
// transaction ([InOneTrip]).
//
// Errors are the driver's, except [ErrBusy] and [ContentionError].
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
	"github.com/jackc/puddle/v2"

	"github.com/flowfabric/flowfabric-go/db"
)

// ErrBusy reports that a transaction with a short wait met a lock held for longer than a moment. Nothing was written.
var ErrBusy = errors.New("held by another transaction")

// ContentionError is the last error of a transaction whose tries the server all aborted in favour of others. Nothing
// was written.
type ContentionError struct {
	Tries int
	Err   error
}

func (e *ContentionError) Error() string { return fmt.Sprintf("after %d tries: %v", e.Tries, e.Err) }

// Unwrap returns the server's error.
func (e *ContentionError) Unwrap() error { return e.Err }

// AcquireError reports that the pool had no connection, because the pool was closed or could not make one. Nothing was
// sent.
type AcquireError struct{ Err error }

func (e *AcquireError) Error() string { return e.Err.Error() }

// Unwrap returns the pool's error.
func (e *AcquireError) Unwrap() error { return e.Err }

// Unsent reports whether err came before sending anything to the server, so nothing can have been written.
func Unsent(err error) bool {
	_, unacquired := errors.AsType[*AcquireError](err)
	return unacquired || pgconn.SafeToRetry(err)
}

// IsClosed reports whether the program has closed its pool.
func IsClosed(err error) bool { return errors.Is(err, puddle.ErrClosedPool) }

// IsCut reports whether err is the error of a connection lost, or ended by the server.
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

// Runner begins transactions on a pool. Copies share their findings about the connections.
type Runner struct {
	pool      *pgxpool.Pool
	shortWait bool

	// explicit: connections may default to another isolation level, so transactions sent at once set theirs.
	explicit *atomic.Bool
}

// NewRunner returns a runner on a pool.
func NewRunner(pool *pgxpool.Pool) Runner { return Runner{pool: pool, explicit: new(atomic.Bool)} }

// On returns r on another pool of the same database.
func (r Runner) On(pool *pgxpool.Pool) Runner {
	r.pool = pool
	return r
}

// ShortWait returns r for transactions that must not wait for others. A lock held for longer than the commit of another
// transaction takes ends them with [ErrBusy], without a retry.
func (r Runner) ShortWait() Runner {
	r.shortWait = true
	return r
}

// HasShortWait reports whether r came from [Runner.ShortWait].
func (r *Runner) HasShortWait() bool { return r.shortWait }

// AtOnce returns a connection on which each statement is a transaction of its own, in one round trip and in one try.
func (r *Runner) AtOnce() db.DBTX { return implicitTx{r} }

// AllAtOnce is [Runner.AtOnce] for several statements, which are one transaction in one round trip.
func (r *Runner) AllAtOnce(ctx context.Context, steps ...Step) error {
	return InOneTrip(ctx, implicitTx{r}, steps...)
}

// InTx runs fn in a transaction and commits, with a new try if the server aborts the transaction. fn is called for each
// try, must use only its transaction, and must do nothing slow.
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
	// No effect after the commit. Rollback has a context of its own, so a cancelled call does not leave the transaction
	// to the pool.
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

// InSavepoint runs fn once behind a savepoint of a caller's transaction: all of fn happens there, or none.
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

// savepoint differs from the driver's names.
const (
	savepoint        = "ffx_operation"
	releaseSavepoint = "release savepoint " + savepoint
)

// setSavepoint sets set once the savepoint exists.
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

// InStatement is [InTx] for one statement, or one batch of statements, in one round trip. fn is called for each try.
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

// InStatements is [InStatement] for several statements without use of each other's results. They travel in one round
// trip and are committed together, or not at all. begin is called for each try.
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

// Commit commits a transaction. If the connection is lost meanwhile, the driver returns the error of a connection that
// was closed before anything was sent. Here such an error is not [Unsent], since the commit may have taken effect.
func Commit(ctx context.Context, tx pgx.Tx) error {
	open := !tx.Conn().IsClosed()
	err := tx.Commit(ctx)
	if open && errors.Is(err, pgconn.ErrConnClosed) {
		return errCommitLost
	}
	return err
}

var errCommitLost = errors.New("the connection was lost during the commit")

// Rollback rolls back a transaction whose context may have ended. After a commit it has no effect.
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
	begin := beginReadCommitted
	if settings := r.settings(conn.Conn(), false); settings != "" {
		begin += ";" + settings
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		conn.Release()
		return nil, err
	}
	return pooledTx{tx, conn}, nil
}

// pooledTx is a transaction that returns its connection to the pool at the end. After a failed commit the following
// [Rollback] returns the connection: until then no other caller uses it, and it shows whether it was lost.
type pooledTx struct {
	pgx.Tx
	conn *pgxpool.Conn
}

func (t pooledTx) Commit(ctx context.Context) error {
	err := Commit(ctx, t.Tx)
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

// pause returns nil once a try that failed with err may be repeated: three tries in all, 5 and 10 milliseconds apart,
// plus up to half as much at random. Otherwise it returns the error of the transaction.
func (r *Runner) pause(ctx context.Context, try int, err error) error {
	switch {
	case r.shortWait && SQLState(err) == sqlLockNotAvailable:
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

// SQLSTATEs for deciding whether and how to repeat a transaction.
const (
	sqlActiveTransaction    = "25001"
	sqlNoSavepoint          = "3B001"
	sqlSerializationFailure = "40001"
	sqlDeadlockDetected     = "40P01"
	sqlLockNotAvailable     = "55P03"
	sqlAdminShutdown        = "57P01"
	sqlCrashShutdown        = "57P02"
)

// isConflict reports whether the server aborted a transaction in favour of another. The transaction may be repeated.
func isConflict(err error) bool {
	switch SQLState(err) {
	case sqlSerializationFailure, sqlDeadlockDetected, sqlLockNotAvailable:
		return true
	}
	return false
}

// SQLState returns the SQLSTATE of a server's error, "" if err is not one.
func SQLState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}
