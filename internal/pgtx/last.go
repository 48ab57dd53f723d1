package pgtx

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// CommitWith sends a last statement of a transaction and the commit in one round trip. The statement runs with the planner
// settings of this library, behind a savepoint. If the server refuses it, the transaction goes on as it was before, and
// refused is the server's error. Otherwise the transaction is over, and must not be used any more, unless err says that it
// is unchanged or unknown: then roll it back.
func CommitWith(ctx context.Context, tx pgx.Tx, last Step) (refused, err error) {
	set, open := false, !tx.Conn().IsClosed()
	err = InOneTrip(ctx, tx, setSavepoint(ctx, &set), execute(ctx, setPlanned), last, execute(ctx, "commit"))
	if err != nil && set && !tx.Conn().IsClosed() && tx.Conn().PgConn().TxStatus() == 'E' {
		rollbackToSavepoint(tx)
		return err, nil
	}
	if open && errors.Is(err, pgconn.ErrConnClosed) {
		err = errCommitLost
	}
	return nil, err
}
