package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budget"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// The operations of keys of reports, as they are stored.
const (
	reportOp = "report"
	spendOp  = "spend"
)

// ReportUsage counts amounts that the holder of a lease has used. The lease is not compared with the database's: the
// usage is counted even if another worker holds the execution by now. A report that would exceed a hard limit is not counted.
// Breaches of limits are results. A budget that does not exist counts without limits.
//
// Reports on one budget that are made at the same time share transactions, each with its own result. Those in a caller's
// transaction don't, and hold the budget until it ends: report on several budgets in the order of their partitions
// ([id.Partitions.BudgetPartition]) and then of their ids, or meet deadlocks.
//
// Errors: [ErrInvalidInput]; [ErrCorruption] if a stored limit can't be read, and nothing was counted; [ErrContention];
// [ErrTransport] if the outcome is unknown; [ErrUnavailable] also while FlowFabric works on the database too.
// Transaction: a constant number of statements; locks the budget, the key and the usage. Safe to repeat with a Key, otherwise
// it counts again.
func (e *Engine) ReportUsage(ctx context.Context, l Lease, usage Usage) (UsageResult, error) {
	const op = "report usage"
	if err := e.checkLease(l); err != nil {
		return UsageResult{}, wrap(op, err)
	}
	return e.reportUsage(ctx, op, &usage)
}

// ReportUsage is [Engine.ReportUsage] for usage that no lease stands for. Its keys are the same.
func (o Operator) ReportUsage(ctx context.Context, usage Usage) (UsageResult, error) {
	return o.e.reportUsage(ctx, "report usage", &usage)
}

func (e *Engine) reportUsage(ctx context.Context, op string, usage *Usage) (UsageResult, error) {
	amounts, err := usage.amounts()
	if err != nil {
		return UsageResult{}, wrap(op, err)
	}
	return e.countUsage(ctx, op, usage.Budget, &usageItem{op: reportOp, amounts: amounts, key: usage.Key})
}

// RecordSpend counts amounts that an execution has used, and notes them for [Engine.ReleaseBudget] until the budget is reset.
// A repetition with the same key is [AlreadyApplied], unless the first call was a [HardBreach], which is returned again: a
// spend that was never counted must not look as if it was. To try again after a reset, use another key.
//
// Errors and transaction: those of [Engine.ReportUsage]. The execution need not exist.
func (e *Engine) RecordSpend(ctx context.Context, spend Spend) (UsageResult, error) {
	const op = "record spend"
	if err := e.checkExecution(spend.Execution); err != nil {
		return UsageResult{}, wrap(op, err)
	}
	amounts, err := sortedAmounts(spend.Amounts)
	if err != nil {
		return UsageResult{}, wrap(op, err)
	}
	return e.countUsage(ctx, op, spend.Budget, &usageItem{op: spendOp, amounts: amounts, key: spend.Key, execution: spend.Execution.UUID()})
}

// usageItem is a report of one caller.
type usageItem struct {
	op        string
	amounts   []budget.Amount
	key       string           // "": each call counts
	execution id.ExecutionUUID // of a spend

	outcome budget.Outcome
	err     error

	waiting usageWaiting
}

func (i *usageItem) spends() bool { return i.op == spendOp }

// countUsage counts a report, together with others unless the engine is bound to a caller's transaction.
func (e *Engine) countUsage(ctx context.Context, op string, b id.BudgetID, item *usageItem) (UsageResult, error) {
	if err := checkBudget(b); err != nil {
		return UsageResult{}, wrap(op, err)
	}
	if err := checkText("Key", item.key, MaxUsageKey); err != nil {
		return UsageResult{}, wrap(op, err)
	}
	if item.key != "" {
		item.key = b.String() + "|" + item.op + "|" + item.key
	}
	var err error
	if e.tx != nil {
		err = e.countTogether(ctx, op, b, []*usageItem{item})
	} else {
		err = e.gatherUsage(ctx, op, b, item)
	}
	if err == nil {
		err = wrap(op, item.err)
	}
	if err != nil {
		return UsageResult{}, err
	}
	return usageResult(item.outcome), nil
}

// countTogether counts reports on one budget in one transaction, in their order. Each has its own outcome or error. If it
// returns an error, the transaction failed as a whole.
func (e *Engine) countTogether(ctx context.Context, op string, b id.BudgetID, items []*usageItem) error {
	count := usageCount{Engine: e, items: items, partition: e.cfg.Partitions.BudgetPartition(b), budget: b.String()}
	_, err := inTx(ctx, e, op, func(tx *txn) (struct{}, error) {
		err := count.inTx(ctx, tx)
		if err == nil && len(items) == 1 {
			err = items[0].err // leave no lock behind
		}
		return struct{}{}, err
	})
	return err
}

// usageCount is one transaction that counts reports on a budget.
type usageCount struct {
	*Engine
	items     []*usageItem
	partition int16
	budget    string

	account budget.Account
	exists  bool
	nowMs   int64

	known  map[string]string     // the stored outcomes of keys that are not taken
	taken  map[string]bool       // keys that this transaction stores
	done   map[string]*usageItem // the reports of keys that are taken
	ledger map[ledgerKey]int64
}

type ledgerKey struct {
	execution id.ExecutionUUID
	dimension string
}

func compareLedgerKeys(a, b ledgerKey) int {
	return cmp.Or(a.execution.Compare(b.execution), cmp.Compare(a.dimension, b.dimension))
}

func (c *usageCount) inTx(ctx context.Context, tx *txn) error {
	if err := c.lock(ctx, tx); err != nil {
		return err
	}
	c.done, c.ledger = make(map[string]*usageItem), make(map[ledgerKey]int64)
	for _, item := range c.items {
		item.outcome, item.err = c.decide(item)
	}
	return c.write(ctx, tx)
}

// lock locks the budget, the keys and the usage, in this order, and reads them.
func (c *usageCount) lock(ctx context.Context, tx *txn) error {
	keys, dimensions := make(map[string]bool), make(map[string]bool)
	for _, item := range c.items {
		if item.key != "" {
			keys[item.key] = true
		}
		for _, m := range item.amounts {
			dimensions[m.Dimension] = true
		}
	}
	var found db.LockBudgetRow
	steps := []step{func(conn db.DBTX) (err error) {
		found, err = c.q.LockBudget(ctx, conn, db.LockBudgetParams{PartitionKey: c.partition, BudgetID: c.budget})
		return err
	}}
	c.known, c.taken = make(map[string]string), make(map[string]bool)
	if len(keys) > 0 {
		sorted := slices.Sorted(maps.Keys(keys))
		steps = append(steps, func(conn db.DBTX) error {
			taken, err := c.q.ReuseBudgetKeys(ctx, conn, db.ReuseBudgetKeysParams{
				PartitionKey: c.partition, TtlMs: usageKeyMs, Keys: sorted, NowMs: c.Engine.nowMs(),
			})
			for _, key := range taken {
				c.taken[key] = true
			}
			return err
		}, func(conn db.DBTX) error {
			rows, err := c.q.ReadBudgetKeys(ctx, conn, db.ReadBudgetKeysParams{PartitionKey: c.partition, Keys: sorted})
			for _, row := range rows {
				c.known[row.DedupKey] = row.Outcome
			}
			return err
		})
	}
	c.account = budget.Account{Usage: make(map[string]int64), Applied: make(map[string]int64)}
	if len(dimensions) > 0 {
		sorted := slices.Sorted(maps.Keys(dimensions))
		steps = append(steps, func(conn db.DBTX) error {
			rows, err := c.q.LockBudgetUsage(ctx, conn, db.LockBudgetUsageParams{
				PartitionKey: c.partition, BudgetID: c.budget, Dimensions: sorted, NowMs: c.Engine.nowMs(),
			})
			for _, row := range rows {
				c.account.Usage[row.Dimension], c.nowMs = row.CurrentValue, row.NowMs
			}
			return err
		})
	}
	if err := pgtx.InOneTrip(ctx, tx, steps...); err != nil {
		return err
	}
	var err error
	c.exists = found.Policy != ""
	c.account.Policy, err = policyUnderLock(found)
	return err
}

// decide decides about a report: whether it is a repetition, and whether it fits.
func (c *usageCount) decide(item *usageItem) (budget.Outcome, error) {
	if item.key == "" {
		return c.apply(item), nil
	}
	var outcome budget.Outcome
	if first := c.done[item.key]; first != nil {
		outcome = first.outcome
	} else if c.taken[item.key] {
		c.done[item.key] = item
		return c.apply(item), nil
	} else {
		var err error
		if outcome, err = budget.ReadOutcome(c.known[item.key]); err != nil {
			return outcome, corrupt("ff_budget_usage_dedup.outcome_json", err)
		}
	}
	if item.spends() && outcome.Kind != budget.HardBreach {
		outcome = budget.Outcome{Kind: budget.AlreadyApplied}
	}
	return outcome, nil
}

// apply applies a report unless a hard limit refuses it.
func (c *usageCount) apply(item *usageItem) budget.Outcome {
	outcome := c.account.Report(item.amounts)
	if item.spends() && outcome.Kind != budget.HardBreach {
		for _, m := range item.amounts {
			key := ledgerKey{item.execution, m.Dimension}
			c.ledger[key] = budget.Add(c.ledger[key], m.N)
		}
	}
	return outcome
}

// write stores the usage, the counters, the outcomes and the ledger, in one round trip.
func (c *usageCount) write(ctx context.Context, tx *txn) error {
	var steps []step
	a := &c.account
	if a.Hard+a.Soft > 0 && c.exists {
		steps = append(steps, func(conn db.DBTX) error {
			return c.q.CountBudgetBreaches(ctx, conn, db.CountBudgetBreachesParams{
				Hard: a.Hard, Soft: a.Soft, AtMs: c.nowMs, Dimension: a.LastBreach, PartitionKey: c.partition, BudgetID: c.budget,
			})
		})
	}
	if len(c.done) > 0 {
		outcomes := db.StoreBudgetOutcomesParams{PartitionKey: c.partition}
		for key, item := range c.done {
			document, err := item.outcome.Encode(c.budget, item.op)
			if err != nil {
				return err
			}
			outcomes.Keys, outcomes.Outcomes = append(outcomes.Keys, key), append(outcomes.Outcomes, document)
		}
		steps = append(steps, func(conn db.DBTX) error { return c.q.StoreBudgetOutcomes(ctx, conn, outcomes) })
	}
	if len(a.Applied) > 0 {
		add := db.AddBudgetUsageParams{PartitionKey: c.partition, BudgetID: c.budget, AtMs: c.nowMs}
		for _, dimension := range slices.Sorted(maps.Keys(a.Applied)) {
			add.Dimensions, add.Amounts = append(add.Dimensions, dimension), append(add.Amounts, a.Applied[dimension])
		}
		steps = append(steps, func(conn db.DBTX) error { return c.q.AddBudgetUsage(ctx, conn, add) })
	}
	if len(c.ledger) > 0 {
		add := db.AddBudgetUsageOfParams{PartitionKey: c.partition, BudgetID: c.budget, AtMs: c.nowMs}
		for _, key := range slices.SortedFunc(maps.Keys(c.ledger), compareLedgerKeys) {
			add.ExecutionIDs = append(add.ExecutionIDs, pgtype.UUID{Bytes: key.execution, Valid: true})
			add.Dimensions, add.Amounts = append(add.Dimensions, key.dimension), append(add.Amounts, c.ledger[key])
		}
		steps = append(steps, func(conn db.DBTX) error { return c.q.AddBudgetUsageOf(ctx, conn, add) })
	}
	return pgtx.InOneTrip(ctx, tx, steps...)
}
