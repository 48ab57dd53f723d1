package budget

import (
	"context"
	"fmt"
	"maps"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Reserve holds amounts for the holder of a lease before the work: all amounts on all budgets, or nothing. Until [Settle],
// reserved amounts count against hard limits like usage. If the lease ends without settling, the amounts return: a later
// Reserve that needs the amounts checks the lease, and a job checks within 15 seconds.
//
// A [SoftBreach] is reserved, a [HardBreach] is not. Several reservations of a lease on a budget add up. A budget that does
// not exist has no limits.
//
// Concurrent reservations on the same budgets share transactions: see [Report]. A reservation in a caller's transaction holds
// the budgets until that transaction ends. There, name all budgets in one call, which locks them in one order; separate calls
// can deadlock.
//
// Errors: [*fferr.LeaseError] with [fferr.ErrStaleLease], [fferr.ErrLeaseExpired], [fferr.ErrLeaseRevoked] or
// [fferr.ErrNotActive], and [fferr.ErrNotFound]: stop work. The errors of [Report] too. Transaction: a constant number of
// statements for each budget; locks the attempt, without blocking renewals, then the budgets, the key and the usage. Safe to
// repeat with a Key, otherwise the amounts are reserved again.
func Reserve(ctx context.Context, eng *engine.Engine, f id.Fence, spec ReserveSpec) (Result, error) {
	return holdUsage(ctx, core.Of(eng), "reserve", f, func() (*usageItem, error) { return spec.item(f) })
}

// Settle ends reservations of a lease and counts the used amounts. Amounts up to the reservation always fit, and the rest
// returns to the budget. A larger amount must fit like a report: otherwise the result is a [HardBreach], nothing is counted,
// and the reservation stays. Settle also works without a reservation, as a report by the holder of the lease. Use [Report]
// for usage that must count even if the lease is lost.
//
// Errors and transaction: as [Reserve]. Safe to repeat with a Key, otherwise the amounts count again.
func Settle(ctx context.Context, eng *engine.Engine, f id.Fence, spec SettleSpec) (Result, error) {
	return holdUsage(ctx, core.Of(eng), "settle", f, func() (*usageItem, error) { return spec.item(f) })
}

func holdUsage(ctx context.Context, c *core.Core, op string, f id.Fence, check func() (*usageItem, error)) (Result, error) {
	if err := c.CheckLease(f); err != nil {
		return Result{}, core.Wrap(op, err)
	}
	item, err := check()
	if err == nil {
		err = checkBudgets(item.budgets)
	}
	if err != nil {
		return Result{}, core.Wrap(op, err)
	}
	if err := countItem(ctx, c, op, item); err != nil {
		return Result{}, err
	}
	return item.result(), nil
}

// item checks the input of a reservation.
func (s *ReserveSpec) item(f id.Fence) (*usageItem, error) {
	amounts, err := sortedAmounts(s.Amounts)
	if err != nil {
		return nil, err
	}
	return &usageItem{op: reserveOp, budgets: s.Budgets, fence: f, amounts: amounts, key: s.Key}, nil
}

// item checks the input of a settlement.
func (s *SettleSpec) item(f id.Fence) (*usageItem, error) {
	used, err := sortedAmounts(s.Used)
	if err != nil {
		return nil, err
	}
	item := &usageItem{op: settleOp, budgets: s.Budgets, fence: f, amounts: used, key: s.Key}
	if s.Reserved == nil {
		return item, nil
	}
	if _, err := sortedAmounts(s.Reserved); err != nil {
		return nil, err
	}
	item.part = s.Reserved
	return item, nil
}

// leaseText identifies a lease in stored outcomes.
func leaseText(f id.Fence) string {
	return fmt.Sprintf("%s/%d/%d", id.ExecutionUUID(f.Execution.UUID()), f.Attempt, f.Epoch)
}

// reserve decides a reservation: it fits into all budgets, or nothing is reserved.
func (c *usageCount) reserve(item *usageItem) budgets.Outcome {
	if outcome, refused := c.refuse(item, make([]map[string]int64, len(c.budgets))); refused {
		return outcome
	}
	outcome := budgets.Outcome{Kind: budgets.Ok}
	for _, b := range c.budgets {
		held := b.held[item.fence]
		if held == nil {
			held = make(map[string]int64)
			b.held[item.fence] = held
		}
		for _, m := range item.amounts {
			held[m.Dimension] = budgets.Add(held[m.Dimension], m.N)
		}
		if breach := b.account.Hold(item.amounts); outcome.Kind == budgets.Ok && breach.Kind != budgets.Ok {
			breach.At = b.id
			outcome = breach
		}
	}
	return outcome
}

// settle decides a settlement: the used amounts fit into all budgets, or nothing is settled.
func (c *usageCount) settle(item *usageItem) budgets.Outcome {
	covered := make([]map[string]int64, len(c.budgets))
	for i, b := range c.budgets {
		covered[i] = item.covered(b.held[item.fence])
	}
	if outcome, refused := c.refuse(item, covered); refused {
		return outcome
	}
	outcome := budgets.Outcome{Kind: budgets.Ok}
	for i, b := range c.budgets {
		b.free(item.fence, covered[i])
		if breach := b.account.Apply(item.amounts); outcome.Kind == budgets.Ok && breach.Kind != budgets.Ok {
			breach.At = b.id
			outcome = breach
		}
	}
	return outcome
}

// settleAgain ends the reservation of a lease after another lease has settled the usage.
func (c *usageCount) settleAgain(item *usageItem) {
	for _, b := range c.budgets {
		b.free(item.fence, item.covered(b.held[item.fence]))
	}
}

// refuse reports whether one of the budgets has too little left for an item. The breach counts for the first such budget.
func (c *usageCount) refuse(item *usageItem, covered []map[string]int64) (outcome budgets.Outcome, refused bool) {
	for i, b := range c.budgets {
		refusal, refuses := b.account.Refuses(budgets.Request{
			Amounts: item.amounts, Reserves: item.op == reserveOp, Held: b.held[item.fence], Covered: covered[i],
		})
		switch {
		case refuses && !refused:
			c.refused, refused = true, true
			outcome = b.account.Breach(refusal)
			outcome.At = b.id
		case refuses && !refusal.ByReservations:
			outcome.ByReservations = false
		}
	}
	return outcome, refused
}

// covered returns the part of a lease's reservations on a budget ended by a settlement.
func (i *usageItem) covered(held map[string]int64) map[string]int64 {
	covered := make(map[string]int64, len(held))
	for dimension, n := range held {
		if i.part != nil {
			n = min(n, i.part[dimension])
		}
		covered[dimension] = n
	}
	return covered
}

// free takes amounts off the reservations of a lease.
func (b *countedBudget) free(f id.Fence, amounts map[string]int64) {
	for dimension, n := range amounts {
		b.held[f][dimension] -= n
	}
	b.account.Free(amounts)
}

// left returns the rest in the dimensions of an item, the least of all budgets.
func (c *usageCount) left(item *usageItem) map[string]int64 {
	left := make(map[string]int64, len(item.amounts))
	for _, m := range item.amounts {
		for _, b := range c.budgets {
			n, limited := b.account.Left(m.Dimension)
			if known, found := left[m.Dimension]; limited && (!found || n < known) {
				left[m.Dimension] = n
			}
		}
	}
	return left
}

// cloneHeld copies reservations by lease and dimension.
func cloneHeld(of map[id.Fence]map[string]int64) map[id.Fence]map[string]int64 {
	clone := make(map[id.Fence]map[string]int64, len(of))
	for f, held := range of {
		clone[f] = maps.Clone(held)
	}
	return clone
}
