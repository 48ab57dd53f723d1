package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
)

// PromoteDelayed makes delayed executions claimable when they are due. It handles at most batch executions and returns
// how many; call it again while that equals batch. The number includes executions whose delay was left over from an
// earlier state and is only cleared.
//
// Errors: [ErrInvalidInput]; [ErrBusy] if another transaction holds a conflicting queue entry; nothing was written.
// Transaction: one statement; locks the executions and skips locked ones. Safe to repeat and to run in any number of
// processes.
func (m Maintenance) PromoteDelayed(ctx context.Context, batch int) (int, error) {
	e := m.e
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	return inStatement(ctx, e.impatient(), "promote delayed", func(conn db.DBTX, due *notifications) (int, error) {
		rows, err := e.q.PromoteDelayed(ctx, conn, db.PromoteDelayedParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
		for _, row := range rows {
			switch {
			case row.Gated:
				due.gated()
			case row.Promoted:
				due.lane(row.LaneID)
			}
		}
		return len(rows), err
	})
}
