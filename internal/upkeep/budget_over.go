package upkeep

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// CancelOverBudget cancels executions that a breach of a budget has left to this job: its process has ended since, or the
// breach was part of a caller's transaction. It also forgets admissions under budgets with CancelOnBreach whose
// executions have ended. It looks at up to batch executions of either kind, and returns how many it has cancelled or forgotten.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one for each 100 executions to cancel, which waits for no lock, and those of
// [engine.Engine.CancelExecution] for each one that is locked; two statements besides, which skip locked rows. Safe to repeat and to
// run in any number of processes.
func (u *Upkeep) CancelOverBudget(ctx context.Context, batch int) (int, error) {
	const op = "cancel executions over budget"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	done, err := u.c.CancelOverBudget(ctx, op, batch)
	if err != nil {
		return done, err
	}
	dropped, err := core.InStatement(ctx, u.impatient().c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return u.c.Q.LookAtAdmissions(ctx, conn, db.LookAtAdmissionsParams{
			NowMs: u.c.NowMs(), LookMs: core.AdmissionLook.Milliseconds(), BatchSize: int32(batch),
		})
	})
	return max(done, int(dropped)), err
}

// OverBudget receives a value when a transaction of [engine.Engine.InTx] of this engine was a breach that cancels executions. Then
// call the job cancel_over_budget soon. Outside transactions the engine cancels them itself.
func (u *Upkeep) OverBudget() <-chan struct{} { return u.c.OverBudget }
