package upkeep

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// UnblockRoutes releases executions that were blocked for lack of a capable worker, if a live worker now serves their
// lane with the required capabilities. Executions become claimable, or wait for admission if they name a budget or
// quota. It handles at most batch executions and returns how many.
//
// It looks for registered workers, as listed by [engine.Engine.Workers]. If executions wait for a worker with
// Config.NoRegister, use [operator.Unblock].
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrBusy] as the job promote_delayed. Transaction: one statement; locks the
// executions and skips locked ones. Safe to repeat and to run in any number of processes.
func (u *Upkeep) UnblockRoutes(ctx context.Context, batch int) (int, error) {
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, u.shortWait().c, "unblock routes", func(conn db.DBTX, due *core.Notifications) (int, error) {
		rows, err := u.c.Q.UnblockRoutes(ctx, conn, db.UnblockRoutesParams{NowMs: u.c.NowMs(), BatchSize: int32(batch)})
		for _, row := range rows {
			if row.Claimable {
				due.Lane(row.LaneID)
			} else {
				due.Gated()
			}
		}
		return len(rows), err
	})
}
