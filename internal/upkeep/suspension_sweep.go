package upkeep

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// waitPositions are where the next [Upkeep.SweepWaits] continues.
type waitPositions struct {
	mu          sync.Mutex
	suspensions core.RowPosition
	waitpoints  core.RowPosition
}

// SweepWaits deletes the waits of ended executions: waitpoints at once, suspensions with their received signals an hour
// after the end. Ids and idempotency keys of signals stay as long as the execution. It also deletes retired keys of
// tokens whose grace is over. It examines up to batch waitpoints and as many suspensions, at most [core.MaxSweep], in
// the order of their rows, and returns how many rows it deleted. Each call continues after the previous one of the same
// engine, and begins again after the last row.
//
// A cancel, a timeout and a deadline delete the waits of their executions themselves. A completion, a failure and a
// skip don't, and cost nothing more.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one for the suspensions, one for the waitpoints and one for the keys;
// skips locked rows, and a keystore being changed by another transaction. Safe to repeat and to run in any number of
// processes.
func (u *Upkeep) SweepWaits(ctx context.Context, batch int) (int, error) {
	const op = "sweep waits"
	if batch < 1 || batch > core.MaxSweep {
		return 0, core.Invalid("batch", fmt.Sprintf("must be between 1 and %d", core.MaxSweep))
	}
	u.waits.mu.Lock()
	suspensions, waitpoints := u.waits.suspensions, u.waits.waitpoints
	u.waits.mu.Unlock()
	next, deleted, err := u.sweepSuspensions(ctx, op, suspensions, batch)
	if err != nil {
		return 0, err
	}
	nextWaitpoint, dropped, err := u.sweepWaitpoints(ctx, op, waitpoints, batch)
	deleted += dropped
	if err != nil {
		return deleted, err
	}
	u.waits.mu.Lock()
	if u.waits.suspensions == suspensions { // no other call has moved the position
		u.waits.suspensions = next
	}
	if u.waits.waitpoints == waitpoints {
		u.waits.waitpoints = nextWaitpoint
	}
	u.waits.mu.Unlock()
	keys, err := u.dropExpiredKeys(ctx, op)
	return deleted + keys, err
}

func (u *Upkeep) sweepSuspensions(ctx context.Context, op string, from core.RowPosition, n int) (next core.RowPosition, deleted int, err error) {
	params := db.SweepSuspensionsParams{NowMs: u.c.NowMs(), PageSize: int32(n)}
	params.AfterPartitionKey, params.AfterKey = from.After()
	row, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (db.SweepSuspensionsRow, error) {
		return u.c.Q.SweepSuspensions(ctx, conn, params)
	})
	if err != nil || int(row.Examined) < n {
		return core.RowPosition{}, int(row.Deleted), err
	}
	return core.RowPosition{Partition: row.LastPartitionKey, Key: row.LastKey}, int(row.Deleted), nil
}

func (u *Upkeep) sweepWaitpoints(ctx context.Context, op string, from core.RowPosition, n int) (next core.RowPosition, deleted int, err error) {
	params := db.SweepWaitpointsParams{NowMs: u.c.NowMs(), PageSize: int32(n)}
	params.AfterPartitionKey, params.AfterKey = from.After()
	row, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (db.SweepWaitpointsRow, error) {
		return u.c.Q.SweepWaitpoints(ctx, conn, params)
	})
	if err != nil || int(row.Examined) < n {
		return core.RowPosition{}, int(row.Deleted), err
	}
	return core.RowPosition{Partition: row.LastPartitionKey, Key: row.LastKey}, int(row.Deleted), nil
}

// dropExpiredKeys deletes retired keys whose grace is over, unless another transaction changes the keystore.
func (u *Upkeep) dropExpiredKeys(ctx context.Context, op string) (int, error) {
	n, err := core.InTx(ctx, u.shortWait().c, op, func(tx *core.Txn) (int, error) {
		if err := u.c.Q.LockKeys(ctx, tx); err != nil {
			return 0, err
		}
		n, err := u.c.Q.DropExpiredKeys(ctx, tx, u.c.NowMs())
		return int(n), err
	})
	if errors.Is(err, fferr.ErrBusy) {
		return 0, nil
	}
	return n, err
}
