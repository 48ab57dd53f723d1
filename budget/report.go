package budget

import (
	"context"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// The stored operations of keys.
const (
	reportOp  = "report"
	spendOp   = "spend"
	reserveOp = "reserve"
	settleOp  = "settle"
)

// Report counts used amounts, unless the usage would exceed a hard limit: then nothing is counted, and the result is a
// [HardBreach]. A budget that does not exist counts without limits.
//
// Concurrent reports on one budget share transactions, each with its own result. A report in a caller's transaction doesn't,
// and holds the budget until that transaction ends: report on several budgets in the order of their partitions
// ([id.Partitions.BudgetPartition]) and then of their ids, to avoid deadlocks.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrCorruption] if a stored limit can't be read, and nothing was counted;
// [fferr.ErrContention]; [fferr.ErrTransport] if the outcome is unknown. Transaction: a constant number of statements; locks
// the budget, the key and the usage. Safe to repeat with a Key, otherwise the amounts count again.
func Report(ctx context.Context, eng *engine.Engine, usage Usage) (Result, error) {
	const op = "report usage"
	c := core.Of(eng)
	amounts, err := usage.amounts()
	if err != nil {
		return Result{}, core.Wrap(op, err)
	}
	return countUsage(ctx, c, op, &usageItem{op: reportOp, budgets: []id.BudgetID{usage.Budget}, amounts: amounts, key: usage.Key})
}

// RecordSpend counts amounts used by an execution, and keeps them for [Release] until the budget is reset. A repetition with
// the same key returns [AlreadyApplied], or the [HardBreach] of the first call. To try again after a reset, use another key.
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
	part      map[string]int64 // the reservations ended by a settlement; nil: all

	outcome budgets.Outcome
	left    map[string]int64
	busy    bool // another transaction holds the attempt of the lease: count the item alone
	err     error

	waiting usageWaiting
}

func (i *usageItem) spends() bool { return i.op == spendOp }

// fenced reports whether the item needs a lease.
func (i *usageItem) fenced() bool { return i.op == reserveOp || i.op == settleOp }

// countUsage counts a report.
func countUsage(ctx context.Context, c *core.Core, op string, item *usageItem) (Result, error) {
	if err := checkBudget(item.budgets[0]); err != nil {
		return Result{}, core.Wrap(op, err)
	}
	if err := countItem(ctx, c, op, item); err != nil {
		return Result{}, err
	}
	return item.result(), nil
}

// result returns the result for the caller of an item.
func (i *usageItem) result() Result {
	o := &i.outcome
	r := Result{
		Outcome: Outcome(o.Kind), Left: i.left, Dimension: o.Dimension, Current: o.Current, Reserved: o.Reserved, Limit: o.Limit,
		ByReservations: o.ByReservations,
	}
	if o.Kind == budgets.HardBreach || o.Kind == budgets.SoftBreach {
		r.Budget = i.budgets[0]
		for _, b := range i.budgets {
			if b.String() == o.At {
				r.Budget = b
			}
		}
	}
	return r
}

// countItem counts an item, together with others unless the engine is bound to a caller's transaction.
func countItem(ctx context.Context, c *core.Core, op string, item *usageItem) error {
	if err := core.CheckText("Key", item.key, maxKey); err != nil {
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

// countTogether counts items on the same budgets in one transaction, in their order. Each item has its own outcome or error.
// A returned error means that the transaction failed as a whole. Without waits, items with a locked attempt are busy.
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
