package upkeep

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ReleaseReservations examines at most batch due reservations of budgets. It deletes the reservations of ended leases,
// and returns how many. After a renewal, reservations are due again at the end of the lease.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked reservations and attempts. Safe to repeat and to
// run in any number of processes.
func (u *Upkeep) ReleaseReservations(ctx context.Context, batch int) (int, error) {
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, u.shortWait().c, "release reservations", func(conn db.DBTX, due *core.Notifications) (int, error) {
		n, err := u.c.Q.ReleaseReservations(ctx, conn, db.ReleaseReservationsParams{NowMs: u.c.NowMs(), BatchSize: int32(batch)})
		if n > 0 {
			due.Gated()
		}
		return int(n), err
	})
}
