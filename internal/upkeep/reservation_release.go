package upkeep

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ReleaseReservations looks at reservations of budgets that are due, at most batch of them: it deletes those whose
// lease is over, and returns how many. Those of a lease that was renewed are due again at its end.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked reservations and attempts. Safe to repeat and to
// run in any number of processes.
func (u *Upkeep) ReleaseReservations(ctx context.Context, batch int) (int, error) {
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, u.impatient().c, "release reservations", func(conn db.DBTX, due *core.Notifications) (int, error) {
		n, err := u.c.Q.ReleaseReservations(ctx, conn, db.ReleaseReservationsParams{NowMs: u.c.NowMs(), BatchSize: int32(batch)})
		if n > 0 {
			due.Gated()
		}
		return int(n), err
	})
}
