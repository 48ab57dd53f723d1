package upkeep

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ResetBudgets resets at most batch budgets whose interval is over by the database's clock, and deletes budgets that
// were unused for their retention. It returns how many budgets it reset or deleted. A late reset does not change the
// phase of later ones; several missed intervals count as one. A budget with an unreadable policy does not keep others
// from their reset.
//
// Errors: [fferr.ErrInvalidInput]; else the first error of a budget, after all others were reset. Transaction: one for each
// budget; skips locked ones. Safe to repeat and to run in any number of processes.
func (u *Upkeep) ResetBudgets(ctx context.Context, batch int) (int, error) {
	const op = "reset budgets"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	params := db.ScanDueBudgetsParams{NowMs: u.c.NowMs(), AfterPartition: -1, PageSize: int32(batch)}
	var failed error
	for n := 0; ; {
		due, err := u.c.Q.ScanDueBudgets(ctx, u.c.Reader(), params)
		if err != nil {
			return n, core.Wrap(op, err)
		}
		for _, row := range due {
			if n == batch {
				return n, failed
			}
			done, err := u.resetDue(ctx, op, row.PartitionKey, row.BudgetID)
			switch {
			case errors.Is(err, fferr.ErrBusy): // by the next call
			case err != nil && ctx.Err() != nil:
				return n, err
			case err != nil && failed == nil:
				failed = err
			case done:
				n++
			}
		}
		if len(due) < batch {
			return n, failed
		}
		last := due[len(due)-1]
		params.AfterMs, params.AfterPartition, params.AfterID = last.DueMs, last.PartitionKey, last.BudgetID
	}
}

// resetDue resets a budget, or deletes an unused one, if still due. It reports whether it did.
func (u *Upkeep) resetDue(ctx context.Context, op string, partition int16, b string) (bool, error) {
	return core.InTx(ctx, u.c, op, func(tx *core.Txn) (bool, error) {
		row, err := u.c.Q.TakeDueBudget(ctx, tx, db.TakeDueBudgetParams{NowMs: u.c.NowMs(), PartitionKey: partition, BudgetID: b})
		switch {
		case core.IsNoRow(err):
			return false, nil
		case err != nil:
			return false, err
		}
		policy, err := core.BudgetPolicy(row.Policy)
		if err != nil {
			return false, err
		}
		if policy.Ephemeral() {
			return u.retireBudget(ctx, tx, partition, b, &policy, row.NowMs)
		}
		tx.Due.Gated()
		return true, u.c.ResetBudget(ctx, tx, partition, b, row.NowMs, policy.NextScheduled(row.DueMs, row.NowMs))
	})
}

// retireBudget deletes a locked budget that was unused for its retention, and reports whether it did. Otherwise it
// stores the time of the next check.
func (u *Upkeep) retireBudget(ctx context.Context, tx *core.Txn, partition int16, b string, policy *budgets.Policy, nowMs int64) (bool, error) {
	parsed, err := id.ParseBudgetID(b)
	if err != nil {
		return false, core.Corrupt("ff_budget_policy.budget_id", err)
	}
	gate := pgtype.UUID{Bytes: parsed.UUID(), Valid: true}
	use, err := u.c.Q.GetBudgetUse(ctx, tx, db.GetBudgetUseParams{PartitionKey: partition, BudgetID: b, GateID: gate})
	if err != nil {
		return false, err
	}
	usedMs := min(use.UsedAtMs, nowMs) // a clock may have been ahead
	if use.InUse {
		usedMs = nowMs
	}
	if next := policy.NextLook(usedMs); next > nowMs {
		return false, u.c.Q.PostponeBudget(ctx, tx, db.PostponeBudgetParams{NextMs: next, PartitionKey: partition, BudgetID: b})
	}
	return true, u.c.DropBudget(ctx, tx, partition, b)
}

// PruneUsageKeys deletes at most batch expired keys of reports, and returns how many.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked keys. Safe to repeat and to run in any number of
// processes.
func (u *Upkeep) PruneUsageKeys(ctx context.Context, batch int) (int, error) {
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, u.shortWait().c, "prune usage keys", func(conn db.DBTX, _ *core.Notifications) (int, error) {
		n, err := u.c.Q.PruneBudgetKeys(ctx, conn, db.PruneBudgetKeysParams{NowMs: u.c.NowMs(), BatchSize: int32(batch)})
		return int(n), err
	})
}
