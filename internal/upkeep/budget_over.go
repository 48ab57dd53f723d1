package upkeep

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// CancelOverBudget cancels executions that a breach of a budget has left to the job: the process of the breach has
// ended since, or the breach was part of a caller's transaction. It also deletes admissions of ended executions under
// budgets with CancelOnBreach. It examines up to batch executions of either kind, and returns the larger number of
// changes.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per 100 executions to cancel, without lock waits, and for each
// locked execution the transaction of [engine.Engine.CancelExecution]; two statements besides, which skip locked rows.
// Safe to repeat and to run in any number of processes.
func (u *Upkeep) CancelOverBudget(ctx context.Context, batch int) (int, error) {
	const op = "cancel executions over budget"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	done, err := u.c.CancelOverBudget(ctx, op, batch)
	if err != nil {
		return done, err
	}
	dropped, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return u.c.Q.LookAtAdmissions(ctx, conn, db.LookAtAdmissionsParams{
			NowMs: u.c.NowMs(), LookMs: core.AdmissionLook.Milliseconds(), BatchSize: int32(batch),
		})
	})
	return max(done, int(dropped)), err
}

// OverBudget receives a value after a breach that cancels executions, in a transaction of [engine.Engine.InTx] of this
// engine. Then call the job cancel_over_budget soon. Outside transactions the engine itself cancels the executions.
func (u *Upkeep) OverBudget() <-chan struct{} { return u.c.OverBudget }
