package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
)

// ReleaseReservations looks at reservations of budgets that are due, at most batch of them: it deletes those whose
// lease is over, and returns how many. Those of a lease that was renewed are due again at its end.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked reservations and attempts. Safe to repeat and to
// run in any number of processes.
func (m Maintenance) ReleaseReservations(ctx context.Context, batch int) (int, error) {
	e := m.e
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	return inStatement(ctx, e.impatient(), "release reservations", func(conn db.DBTX, due *notifications) (int, error) {
		n, err := e.q.ReleaseReservations(ctx, conn, db.ReleaseReservationsParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
		if n > 0 {
			due.gated()
		}
		return int(n), err
	})
}
