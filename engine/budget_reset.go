package engine

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budget"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// ResetBudget sets the usage of a budget to 0, forgets the spends of executions, and returns when it is reset next,
// zero if it has no interval: one interval from now. The counts of breaches stay.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrCorruption] if its policy can't be read;
// [fferr.ErrContention]. Transaction: locks the budget and its usage.
func (o Operator) ResetBudget(ctx context.Context, b id.BudgetID) (time.Time, error) {
	const op = "reset budget"
	if err := checkBudget(b); err != nil {
		return time.Time{}, core.Wrap(op, err)
	}
	e := o.e
	reset := budgetReset{Engine: e, partition: e.cfg.Partitions.BudgetPartition(b), budget: b.String()}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (time.Time, error) {
		stored, err := e.c.Q.LockBudget(ctx, tx, db.LockBudgetParams{PartitionKey: reset.partition, BudgetID: reset.budget})
		switch {
		case err != nil:
			return time.Time{}, err
		case stored == "":
			return time.Time{}, budgetNotFound(b)
		}
		policy, err := budgetPolicy(stored)
		if err != nil {
			return time.Time{}, err
		}
		nowMs, err := e.c.Q.GetNow(ctx, tx, e.c.NowMs())
		if err != nil {
			return time.Time{}, err
		}
		next := policy.NextLook(nowMs)
		tx.Due.Gated()
		if err := reset.write(ctx, tx, nowMs, next); err != nil || next == 0 || policy.Ephemeral() {
			return time.Time{}, err
		}
		return time.UnixMilli(next), nil
	})
}

// budgetReset is the reset of one budget.
type budgetReset struct {
	*Engine
	partition int16
	budget    string
}

// write resets a locked budget.
func (r *budgetReset) write(ctx context.Context, tx *core.Txn, nowMs, nextMs int64) error {
	return pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			return r.c.Q.MarkBudgetReset(ctx, conn, db.MarkBudgetResetParams{
				NextMs: nextMs, AtMs: nowMs, PartitionKey: r.partition, BudgetID: r.budget,
			})
		},
		func(conn db.DBTX) error {
			return r.c.Q.ResetBudgetUsage(ctx, conn, db.ResetBudgetUsageParams{AtMs: nowMs, PartitionKey: r.partition, BudgetID: r.budget})
		},
		func(conn db.DBTX) error {
			return r.c.Q.DropBudgetLedger(ctx, conn, db.DropBudgetLedgerParams{PartitionKey: r.partition, BudgetID: r.budget})
		},
	)
}

// ResetBudgets resets the budgets whose interval is over by the database's clock, at most batch, and returns how many it reset.
// The next reset follows in the same phase, however late this one is; intervals that were missed are one. A budget that can't
// be reset, because its policy can't be read, does not keep others from it. It deletes the budgets that have been unused for
// their retention, which count too.
//
// Errors: [fferr.ErrInvalidInput]; else the first error of a budget, after all others were reset. Transaction: one for each
// budget; skips locked ones. Safe to repeat and to run in any number of processes.
func (m Maintenance) ResetBudgets(ctx context.Context, batch int) (int, error) {
	const op = "reset budgets"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	e := m.e.impatient()
	params := db.ScanDueBudgetsParams{NowMs: e.c.NowMs(), AfterPartition: -1, PageSize: int32(batch)}
	var failed error
	for n := 0; ; {
		due, err := e.c.Q.ScanDueBudgets(ctx, e.c.Reader(), params)
		if err != nil {
			return n, core.Wrap(op, err)
		}
		for _, row := range due {
			if n == batch {
				return n, failed
			}
			done, err := e.resetDue(ctx, op, row.PartitionKey, row.BudgetID)
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

// resetDue resets a budget if that is still due, and reports whether it did.
func (e *Engine) resetDue(ctx context.Context, op string, partition int16, b string) (bool, error) {
	reset := budgetReset{Engine: e, partition: partition, budget: b}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (bool, error) {
		row, err := e.c.Q.TakeDueBudget(ctx, tx, db.TakeDueBudgetParams{NowMs: e.c.NowMs(), PartitionKey: partition, BudgetID: b})
		switch {
		case core.IsNoRow(err):
			return false, nil
		case err != nil:
			return false, err
		}
		policy, err := budgetPolicy(row.Policy)
		if err != nil {
			return false, err
		}
		if policy.Ephemeral() {
			return e.retireBudget(ctx, tx, partition, b, &policy, row.NowMs)
		}
		tx.Due.Gated()
		return true, reset.write(ctx, tx, row.NowMs, policy.NextScheduled(row.DueMs, row.NowMs))
	})
}

// retireBudget deletes a locked budget if it has been unused for its retention, and reports whether it did. Otherwise it notes
// when to look again.
func (e *Engine) retireBudget(ctx context.Context, tx *core.Txn, partition int16, b string, policy *budget.Policy, nowMs int64) (bool, error) {
	parsed, err := id.ParseBudgetID(b)
	if err != nil {
		return false, core.Corrupt("ff_budget_policy.budget_id", err)
	}
	gate := pgtype.UUID{Bytes: parsed.UUID(), Valid: true}
	use, err := e.c.Q.GetBudgetUse(ctx, tx, db.GetBudgetUseParams{PartitionKey: partition, BudgetID: b, GateID: gate})
	if err != nil {
		return false, err
	}
	usedMs := min(use.UsedAtMs, nowMs) // a clock may have been ahead
	if use.InUse {
		usedMs = nowMs
	}
	if next := policy.NextLook(usedMs); next > nowMs {
		return false, e.c.Q.PostponeBudget(ctx, tx, db.PostponeBudgetParams{NextMs: next, PartitionKey: partition, BudgetID: b})
	}
	return true, e.dropBudget(ctx, tx, partition, b)
}

// PruneUsageKeys deletes keys of reports that have expired, at most batch of them, and returns how many.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked keys. Safe to repeat and to run in any number of
// processes.
func (m Maintenance) PruneUsageKeys(ctx context.Context, batch int) (int, error) {
	e := m.e
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, e.impatient().c, "prune usage keys", func(conn db.DBTX, _ *core.Notifications) (int, error) {
		n, err := e.c.Q.PruneBudgetKeys(ctx, conn, db.PruneBudgetKeysParams{NowMs: e.c.NowMs(), BatchSize: int32(batch)})
		return int(n), err
	})
}
