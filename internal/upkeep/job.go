package upkeep

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Failure reasons that background jobs store on executions.
const (
	reasonDeadline = "execution_deadline"
)

// sweepPositions are the places where this process's sweeps continue.
type sweepPositions struct {
	repair     repairPosition
	groups     groupPosition
	summarised flowPosition
	waits      waitPositions
}

// PruneCreationKeys deletes at most batch idempotency keys whose window has passed, and returns how many.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked keys. Safe to repeat and to run in any number of
// processes.
func (u *Upkeep) PruneCreationKeys(ctx context.Context, batch int) (int, error) {
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, u.shortWait().c, "prune creation keys", func(conn db.DBTX, _ *core.Notifications) (int, error) {
		n, err := u.c.Q.PruneCreationKeys(ctx, conn, db.PruneCreationKeysParams{NowMs: u.c.NowMs(), BatchSize: int32(batch)})
		return int(n), err
	})
}
