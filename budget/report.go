package budget

import (
	"context"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// The operations of keys of reports, as they are stored.
const (
	reportOp  = "report"
	spendOp   = "spend"
	reserveOp = "reserve"
	settleOp  = "settle"
)

// Report counts amounts that were used. A report that would exceed a hard limit is not counted. Breaches of limits are
// results. A budget that does not exist counts without limits.
//
// Reports on one budget that are made at the same time share transactions, each with its own result. Those in a caller's
// transaction don't, and hold the budget until it ends: report on several budgets in the order of their partitions
// ([id.Partitions.BudgetPartition]) and then of their ids, or meet deadlocks.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrCorruption] if a stored limit can't be read, and nothing was counted;
// [fferr.ErrContention]; [fferr.ErrTransport] if the outcome is unknown. Transaction: a constant number of statements; locks
// the budget, the key and the usage. Safe to repeat with a Key, otherwise it counts again.
func Report(ctx context.Context, eng *engine.Engine, usage Usage) (Result, error) {
	const op = "report usage"
	c := core.Of(eng)
	amounts, err := usage.amounts()
	if err != nil {
		return Result{}, core.Wrap(op, err)
	}
	return countUsage(ctx, c, op, &usageItem{op: reportOp, budgets: []id.BudgetID{usage.Budget}, amounts: amounts, key: usage.Key})
}

// RecordSpend counts amounts that an execution has used, and notes them for [Release] until the budget is reset.
// A repetition with the same key is [AlreadyApplied], unless the first call was a [HardBreach], which is returned again: a
// spend that was never counted must not look as if it was. To try again after a reset, use another key.
//
// Errors and transaction: as [Report]. The execution need not exist.
func RecordSpend(ctx context.Context, eng *engine.Engine, spend Spend) (Result, error) {
	const op = "record spend"
	c := core.Of(eng)
	if err := c.CheckExecution(spend.Execution); err != nil {
		return Result{}, core.Wrap(op, err)
	}
	amounts, err := sortedAmounts(spend.Amounts)
	if err != nil {
		return Result{}, core.Wrap(op, err)
	}
	return countUsage(ctx, c, op, &usageItem{
		op: spendOp, budgets: []id.BudgetID{spend.Budget}, amounts: amounts, key: spend.Key, execution: spend.Execution.UUID(),
	})
}

// usageItem is a report, a reservation or a settlement of one caller.
type usageItem struct {
	op        string
	budgets   []id.BudgetID // one, except for reservations and settlements; the first has the key
	amounts   []budgets.Amount
	key       string           // "": each call counts
	execution id.ExecutionUUID // of a spend
	fence     id.Fence         // of a reservation or settlement
	part      map[string]int64 // of the reservations that a settlement ends; nil: all

	outcome budgets.Outcome
	left    map[string]int64 // of a reservation or settlement
	busy    bool             // another transaction holds the attempt of its lease: count it alone
	err     error

	waiting usageWaiting
}

func (i *usageItem) spends() bool { return i.op == spendOp }

// fenced reports whether only the holder of a lease may do it.
func (i *usageItem) fenced() bool { return i.op == reserveOp || i.op == settleOp }

// countUsage counts a report.
func countUsage(ctx context.Context, c *core.Core, op string, item *usageItem) (Result, error) {
	if err := checkBudget(item.budgets[0]); err != nil {
		return Result{}, core.Wrap(op, err)
	}
	if err := countItem(ctx, c, op, item); err != nil {
		return Result{}, err
	}
	return usageResult(item.outcome), nil
}

// countItem counts an item, together with others unless the engine is bound to a caller's transaction.
func countItem(ctx context.Context, c *core.Core, op string, item *usageItem) error {
	if err := core.CheckText("Key", item.key, MaxKey); err != nil {
		return core.Wrap(op, err)
	}
	if item.key != "" {
		item.key = item.budgets[0].String() + "|" + item.op + "|" + item.key
	}
	if c.Tx == nil {
		if err := gatherUsage(ctx, c, op, item); err != nil {
			return err
		}
		if !item.busy {
			return core.Wrap(op, item.err)
		}
		item.busy = false
	}
	if err := countTogether(ctx, c, op, []*usageItem{item}, true); err != nil {
		return err
	}
	return core.Wrap(op, item.err)
}

// countTogether counts items on the same budgets in one transaction, in their order. Each has its own outcome or error. If it
// returns an error, the transaction failed as a whole. Unless it waits for them, items whose attempts are locked are busy.
func countTogether(ctx context.Context, c *core.Core, op string, items []*usageItem, waits bool) error {
	count := newUsageCount(c, items, waits)
	_, err := core.InTx(ctx, c, op, func(tx *core.Txn) (struct{}, error) {
		err := count.inTx(ctx, tx)
		if err == nil && len(items) == 1 {
			err = items[0].err // leave no lock behind
		}
		return struct{}{}, err
	})
	if err == nil && count.over && c.Tx == nil {
		cancelOverSoon(c)
	}
	return err
}
