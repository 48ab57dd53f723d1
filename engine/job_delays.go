package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
)

// PromoteDelayed makes delayed executions claimable whose time has come, at most batch of them. It
// returns on how many it acted, those included whose delay was left from an earlier state and is only
// forgotten; the caller repeats it while that equals batch. Safe to repeat and to run in any number of
// processes.
//
// Errors: [ErrBusy] where somebody else holds a row of the queue that stands in the way; nothing was written.
// Transaction: one statement; locks the executions. Those that others hold it passes over, however many there are.
func (m Maintenance) PromoteDelayed(ctx context.Context, batch int) (int, error) {
	e := m.e
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	return inStatement(ctx, e.impatient(), "promote delayed", func(conn db.DBTX, due *notifications) (int, error) {
		rows, err := e.q.PromoteDelayed(ctx, conn, db.PromoteDelayedParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
		for _, row := range rows {
			if row.Promoted {
				due.lane(row.LaneID)
			}
		}
		return len(rows), err
	})
}
