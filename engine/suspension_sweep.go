package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// waitPositions are where the next [Maintenance.SweepWaits] continues.
type waitPositions struct {
	mu          sync.Mutex
	suspensions rowPosition
	waitpoints  rowPosition
}

// rowPosition is the key of a row; the zero value stands before the first one.
type rowPosition struct {
	partition int16
	key       pgtype.UUID
}

// after returns the parameters for the rows after the position.
func (p rowPosition) after() (int16, pgtype.UUID) {
	if !p.key.Valid {
		return -1, pgtype.UUID{Valid: true}
	}
	return p.partition, p.key
}

// SweepWaits deletes what ended executions have left of their waits: waitpoints at once, suspensions with the signals that
// they received an hour after the end. Ids and idempotency keys of signals stay as long as the execution. It also deletes
// retired keys of tokens whose grace is over. It examines up to batch waitpoints and as many suspensions, at most
// [MaxSweep], in the order of their rows, and returns how many rows it deleted. Each call continues after the previous one
// of the same engine, and begins again after the last row.
//
// A cancel, a timeout and a deadline delete the waits of the executions that they end themselves. A completion, a failure
// and a skip don't, and cost nothing more.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one for the suspensions, one for the waitpoints and one for the keys; skips
// locked rows, and a keystore that another transaction changes. Safe to repeat and to run in any number of processes.
func (m Maintenance) SweepWaits(ctx context.Context, batch int) (int, error) {
	e := m.e
	const op = "sweep waits"
	if batch < 1 || batch > MaxSweep {
		return 0, core.Invalid("batch", fmt.Sprintf("must be between 1 and %d", MaxSweep))
	}
	e.waits.mu.Lock()
	suspensions, waitpoints := e.waits.suspensions, e.waits.waitpoints
	e.waits.mu.Unlock()
	next, deleted, err := e.sweepSuspensions(ctx, op, suspensions, batch)
	if err != nil {
		return 0, err
	}
	nextWaitpoint, dropped, err := e.sweepWaitpoints(ctx, op, waitpoints, batch)
	deleted += dropped
	if err != nil {
		return deleted, err
	}
	e.waits.mu.Lock()
	if e.waits.suspensions == suspensions { // no other call has moved it
		e.waits.suspensions = next
	}
	if e.waits.waitpoints == waitpoints {
		e.waits.waitpoints = nextWaitpoint
	}
	e.waits.mu.Unlock()
	keys, err := e.dropExpiredKeys(ctx, op)
	return deleted + keys, err
}

func (e *Engine) sweepSuspensions(ctx context.Context, op string, from rowPosition, n int) (next rowPosition, deleted int, err error) {
	params := db.SweepSuspensionsParams{NowMs: e.c.NowMs(), PageSize: int32(n)}
	params.AfterPartitionKey, params.AfterKey = from.after()
	row, err := core.InStatement(ctx, e.impatient().c, op, func(conn db.DBTX, _ *core.Notifications) (db.SweepSuspensionsRow, error) {
		return e.c.Q.SweepSuspensions(ctx, conn, params)
	})
	if err != nil || int(row.Examined) < n {
		return rowPosition{}, int(row.Deleted), err
	}
	return rowPosition{row.LastPartitionKey, row.LastKey}, int(row.Deleted), nil
}

func (e *Engine) sweepWaitpoints(ctx context.Context, op string, from rowPosition, n int) (next rowPosition, deleted int, err error) {
	params := db.SweepWaitpointsParams{NowMs: e.c.NowMs(), PageSize: int32(n)}
	params.AfterPartitionKey, params.AfterKey = from.after()
	row, err := core.InStatement(ctx, e.impatient().c, op, func(conn db.DBTX, _ *core.Notifications) (db.SweepWaitpointsRow, error) {
		return e.c.Q.SweepWaitpoints(ctx, conn, params)
	})
	if err != nil || int(row.Examined) < n {
		return rowPosition{}, int(row.Deleted), err
	}
	return rowPosition{row.LastPartitionKey, row.LastKey}, int(row.Deleted), nil
}

// dropExpiredKeys deletes retired keys whose grace is over, unless another transaction changes the keystore.
func (e *Engine) dropExpiredKeys(ctx context.Context, op string) (int, error) {
	n, err := core.InTx(ctx, e.impatient().c, op, func(tx *core.Txn) (int, error) {
		if err := e.c.Q.LockKeys(ctx, tx); err != nil {
			return 0, err
		}
		n, err := e.c.Q.DropExpiredKeys(ctx, tx, e.c.NowMs())
		return int(n), err
	})
	if errors.Is(err, fferr.ErrBusy) {
		return 0, nil
	}
	return n, err
}
