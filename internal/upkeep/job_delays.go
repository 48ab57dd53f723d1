package upkeep

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// PromoteDelayed makes delayed executions claimable when due. It handles at most batch executions and returns how many.
// The number includes executions whose delay was left over from an earlier state and is only cleared.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrBusy] if another transaction holds a conflicting queue entry; nothing was written.
// Transaction: one statement, and another transaction for retries of fair work; locks the executions and skips locked
// ones. Safe to repeat and to run in any number of processes.
func (u *Upkeep) PromoteDelayed(ctx context.Context, batch int) (int, error) {
	const op = "promote delayed"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	params := db.PromoteDelayedParams{NowMs: u.c.NowMs(), BatchSize: int32(batch)}
	fair := 0
	n, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, due *core.Notifications) (int, error) {
		rows, err := u.c.Q.PromoteDelayed(ctx, conn, params)
		fair = 0
		for _, row := range rows {
			switch {
			case row.Fair != "":
				fair++
			case row.Gated:
				due.Gated()
			case row.Promoted:
				due.Lane(row.LaneID)
			}
		}
		return len(rows) - fair, err
	})
	if err != nil || fair == 0 {
		return n, err
	}
	params.FairRetries, params.BatchSize = true, int32(fair)
	more, err := core.InTx(ctx, u.c, op, func(tx *core.Txn) (int, error) { return u.promoteFair(ctx, tx, params) })
	return n + more, err
}

// promoteFair promotes delayed executions, and gives retries of fair work the next places of their tenants.
func (u *Upkeep) promoteFair(ctx context.Context, tx *core.Txn, params db.PromoteDelayedParams) (int, error) {
	rows, err := u.c.Q.PromoteDelayed(ctx, tx, params)
	if err != nil {
		return 0, err
	}
	var fair []*core.FairWork
	for _, row := range rows {
		if row.Gated {
			tx.Due.Gated()
		}
		switch {
		case row.Fair != "":
			x := id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))
			fair = append(fair, core.ReturningFair(x, row.LaneID, row.Priority, row.Namespace, row.Fair))
		case row.Promoted && !row.Gated:
			tx.Due.Lane(row.LaneID)
		}
	}
	return len(rows), u.c.PlaceReturning(ctx, tx, fair)
}
