package pgtx

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/db"
)

// CommitWith sends a last statement of a transaction for a caller's function and the commit in one round trip. The
// statement runs with the planner settings of this library, behind the function's savepoint. If the server refuses the
// statement, the transaction continues unchanged, and refused is the server's error. Otherwise the transaction has
// ended and must not be used, unless err says that it is unchanged or unknown: then roll back. If the function has
// ended the transaction, err is [IsNoSavepoint].
func CommitWith(ctx context.Context, tx pgx.Tx, last Step) (refused, err error) {
	set, open := false, !tx.Conn().IsClosed()
	setAgain := func(conn db.DBTX) error {
		_, err := conn.Exec(ctx, setFunction)
		set = err == nil
		return err
	}
	err = InOneTrip(ctx, tx, execute(ctx, releaseFunction), setAgain, execute(ctx, setPlanned), last, execute(ctx, "commit"))
	if err != nil && set && !tx.Conn().IsClosed() && tx.Conn().PgConn().TxStatus() == 'E' {
		rollbackToFunction(tx)
		return err, nil
	}
	if open && errors.Is(err, pgconn.ErrConnClosed) {
		err = errCommitLost
	}
	return nil, err
}

func rollbackToFunction(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = tx.Exec(ctx, "rollback to "+setFunction, pgx.QueryExecModeSimpleProtocol)
}
