package budget

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// usageCount is one transaction that counts items on the same budgets.
type usageCount struct {
	*core.Core
	items   []*usageItem
	waits   bool             // wait for attempts locked by other transactions
	budgets []*countedBudget // in the order of the items; the first has the keys and the ledger
	ordered []*countedBudget // the same, in lock order

	dimensions []string
	fences     []id.Fence // of reservations and settlements, in lock order
	facts      map[id.Fence]*core.LeaseFacts
	locked     map[id.Fence]bool // fences with a locked attempt

	known   map[string]string     // the stored outcomes of keys used before
	taken   map[string]bool       // keys stored by this transaction
	done    map[string]*usageItem // the first item of each taken key
	ledger  map[ledgerKey]int64
	refused bool // a hard limit has refused an item
	over    bool // executions are due for a cancellation
}

// countedBudget is a budget of a transaction.
type countedBudget struct {
	id        string
	partition int16
	exists    bool
	policy    budgets.Policy

	usage    map[string]int64 // as read
	reserved map[string]int64
	stored   map[id.Fence]map[string]int64 // by the leases of the items
	due      bool                          // the lease of a reservation is due for a check
	nowMs    int64

	account budgets.Account // while the items are decided
	held    map[id.Fence]map[string]int64
}

type ledgerKey struct {
	execution id.ExecutionUUID
	dimension string
}

func compareLedgerKeys(a, b ledgerKey) int {
	return cmp.Or(a.execution.Compare(b.execution), cmp.Compare(a.dimension, b.dimension))
}

func newUsageCount(c *core.Core, items []*usageItem, waits bool) *usageCount {
	count := &usageCount{Core: c, items: items, waits: waits}
	for _, b := range items[0].budgets {
		count.budgets = append(count.budgets, &countedBudget{id: b.String(), partition: c.Partitions.BudgetPartition(b)})
	}
	count.ordered = slices.SortedFunc(slices.Values(count.budgets), func(a, b *countedBudget) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.id, b.id))
	})
	dimensions, fences := make(map[string]bool), make(map[id.Fence]bool)
	for _, item := range items {
		for _, m := range item.amounts {
			dimensions[m.Dimension] = true
		}
		if item.fenced() {
			fences[item.fence] = true
		}
	}
	count.dimensions = slices.Sorted(maps.Keys(dimensions))
	count.fences = slices.SortedFunc(maps.Keys(fences), id.Fence.Compare)
	return count
}

func (c *usageCount) inTx(ctx context.Context, tx *core.Txn) error {
	c.over = false
	if err := c.lock(ctx, tx); err != nil {
		return err
	}
	c.decideAll()
	if c.refused && slices.ContainsFunc(c.budgets, func(b *countedBudget) bool { return b.due }) {
		if err := c.look(ctx, tx); err != nil {
			return err
		}
		c.decideAll()
	}
	return c.write(ctx, tx)
}

// decideAll decides the items one after the other, from the state read by lock.
func (c *usageCount) decideAll() {
	c.done, c.ledger, c.refused = make(map[string]*usageItem), make(map[ledgerKey]int64), false
	for _, b := range c.budgets {
		b.account = budgets.Account{
			Policy: b.policy, Usage: maps.Clone(b.usage), Reserved: maps.Clone(b.reserved), Applied: make(map[string]int64),
		}
		b.held = cloneHeld(b.stored)
	}
	for _, item := range c.items {
		item.outcome, item.busy, item.err = budgets.Outcome{}, false, nil
		if item.fenced() {
			if item.err = c.facts[item.fence].Fence(item.fence, nil); item.err != nil {
				continue
			}
			if !c.locked[item.fence] {
				item.busy = true
				continue
			}
		}
		item.outcome, item.err = c.decide(item)
		if item.err == nil {
			item.left = c.left(item)
		}
	}
}

// decide decides whether an item is a repetition, and whether it fits.
func (c *usageCount) decide(item *usageItem) (budgets.Outcome, error) {
	if item.key == "" {
		return c.apply(item), nil
	}
	var outcome budgets.Outcome
	if first := c.done[item.key]; first != nil {
		outcome = first.outcome
	} else if c.taken[item.key] {
		c.done[item.key] = item
		return c.apply(item), nil
	} else {
		var err error
		if outcome, err = budgets.ReadOutcome(c.known[item.key]); err != nil {
			return outcome, core.Corrupt("ff_budget_usage_dedup.outcome_json", err)
		}
	}
	if item.fenced() && outcome.Lease != leaseText(item.fence) {
		return c.decideAfter(outcome, item), nil
	}
	if item.spends() && outcome.Kind != budgets.HardBreach {
		outcome = budgets.Outcome{Kind: budgets.AlreadyApplied}
	}
	return outcome, nil
}

// decideAfter decides about an item whose key another lease has used. A reservation ended with its lease, so the item counts
// anew. A settlement was counted, so only the item's reservation ends.
func (c *usageCount) decideAfter(first budgets.Outcome, item *usageItem) budgets.Outcome {
	if item.op == settleOp && first.Kind != budgets.HardBreach {
		c.settleAgain(item)
		return first
	}
	c.done[item.key] = item
	return c.apply(item)
}

// apply applies an item unless a hard limit refuses it.
func (c *usageCount) apply(item *usageItem) budgets.Outcome {
	var outcome budgets.Outcome
	switch item.op {
	case reserveOp:
		outcome = c.reserve(item)
		outcome.Lease = leaseText(item.fence)
	case settleOp:
		outcome = c.settle(item)
		outcome.Lease = leaseText(item.fence)
	default:
		outcome = c.budgets[0].account.Report(item.amounts)
		c.refused = c.refused || outcome.Kind == budgets.HardBreach
	}
	if item.spends() && outcome.Kind != budgets.HardBreach {
		for _, m := range item.amounts {
			key := ledgerKey{item.execution, m.Dimension}
			c.ledger[key] = budgets.Add(c.ledger[key], m.N)
		}
	}
	return outcome
}

// lock locks the leases, the budgets, the keys and the usage, in this order, and reads them.
func (c *usageCount) lock(ctx context.Context, tx *core.Txn) error {
	steps := c.lockLeases(ctx)
	found := make([]string, len(c.ordered))
	for i, b := range c.ordered {
		steps = append(steps, func(conn db.DBTX) (err error) {
			found[i], err = c.Q.LockBudget(ctx, conn, db.LockBudgetParams{PartitionKey: b.partition, BudgetID: b.id})
			return err
		})
	}
	keyed := c.lockKeys(ctx)
	for _, b := range c.ordered {
		if b == c.budgets[0] {
			steps = append(steps, keyed...)
		}
		steps = append(steps, c.lockUsage(ctx, b)...)
		steps = append(steps, c.readReserved(ctx, b)...)
	}
	if err := pgtx.InOneTrip(ctx, tx, steps...); err != nil {
		return err
	}
	for i, b := range c.ordered {
		b.exists = found[i] != ""
		var err error
		if b.policy, err = core.BudgetPolicy(found[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *usageCount) lockKeys(ctx context.Context) []core.Step {
	keys := make(map[string]bool)
	for _, item := range c.items {
		if item.key != "" {
			keys[item.key] = true
		}
	}
	c.known, c.taken = make(map[string]string), make(map[string]bool)
	if len(keys) == 0 {
		return nil
	}
	sorted, partition := slices.Sorted(maps.Keys(keys)), c.budgets[0].partition
	return []core.Step{func(conn db.DBTX) error {
		taken, err := c.Q.ReuseBudgetKeys(ctx, conn, db.ReuseBudgetKeysParams{
			PartitionKey: partition, TtlMs: usageKeyMs, Keys: sorted, NowMs: c.NowMs(),
		})
		for _, key := range taken {
			c.taken[key] = true
		}
		return err
	}, func(conn db.DBTX) error {
		rows, err := c.Q.ReadBudgetKeys(ctx, conn, db.ReadBudgetKeysParams{PartitionKey: partition, Keys: sorted})
		for _, row := range rows {
			c.known[row.DedupKey] = row.Outcome
		}
		return err
	}}
}

func (c *usageCount) lockUsage(ctx context.Context, b *countedBudget) []core.Step {
	b.usage = make(map[string]int64)
	if len(c.dimensions) == 0 {
		return nil
	}
	return []core.Step{func(conn db.DBTX) error {
		rows, err := c.Q.LockBudgetUsage(ctx, conn, db.LockBudgetUsageParams{
			PartitionKey: b.partition, BudgetID: b.id, Dimensions: c.dimensions, NowMs: c.NowMs(),
		})
		for _, row := range rows {
			b.usage[row.Dimension], b.nowMs = row.CurrentValue, row.NowMs
		}
		return err
	}}
}
