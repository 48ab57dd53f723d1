package pgtx

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A transaction in which a caller's function runs begins with a savepoint. Once the function has ended the transaction by a
// statement the savepoint is gone, also if another statement has begun a new transaction.
const (
	functionSavepoint = "ffx_function"
	setFunction       = "savepoint " + functionSavepoint
	releaseFunction   = "release savepoint " + functionSavepoint
)

// commitFunction fails by [IsNoSavepoint] in another transaction.
const commitFunction = releaseFunction + "; commit"

// FunctionOptions returns the options of a transaction for a caller's function. set is a statement to follow the begin.
func FunctionOptions(set string) pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: "begin; " + set + "; " + setFunction, CommitQuery: commitFunction}
}

// IsNoSavepoint reports whether err means that a savepoint no longer exists.
func IsNoSavepoint(err error) bool { return SQLState(err) == sqlNoSavepoint }

// HasEnded reports whether the function of a transaction, which has returned, has ended it by a statement. That is known at the
// commit as well, unless the function has failed. Then HasEnded asks the server, and undoes the function's statements. tx is made
// by [BeginLate] or with [FunctionOptions], or is a savepoint of the driver if nested is set.
func HasEnded(tx pgx.Tx, failed, nested bool) bool {
	conn := begunConn(tx)
	switch {
	case conn == nil || conn.IsClosed():
		return false
	case conn.PgConn().TxStatus() == 'I':
		return true
	case !failed:
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	if nested {
		err = tx.Rollback(ctx)
	} else {
		_, err = conn.Exec(ctx, "rollback to "+setFunction)
	}
	return IsNoSavepoint(err)
}

// CommitFunction commits a transaction for a caller's function, or releases its savepoint. If the function has ended
// the transaction, the error is [IsNoSavepoint]. If a statement of the function has failed, CommitFunction rolls back
// and returns [pgx.ErrTxCommitRollback].
func CommitFunction(ctx context.Context, tx pgx.Tx) error {
	conn := begunConn(tx)
	if conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() == 'E' {
		Rollback(tx)
		return pgx.ErrTxCommitRollback
	}
	return Commit(ctx, tx)
}

// begunConn returns the connection of a transaction, or nil if the transaction has not begun.
func begunConn(tx pgx.Tx) *pgx.Conn {
	late, ok := tx.(*lateTx)
	switch {
	case !ok:
		return tx.Conn()
	case !late.hasBegun:
		return nil
	}
	return late.conn
}
