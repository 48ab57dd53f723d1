package worker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// Reservation holds amounts of budgets for a handler: see [Job.Reserve].
type Reservation struct {
	budget.Result // of the reservation; its Left says how much more there is

	// Key makes [Reservation.Settle] safe to repeat, also in the next run of the handler: see [budget.SettleSpec]. Set
	// Key before, for example to the id of the answer that was paid for. Default: each call counts.
	Key string

	eng     operations
	run     *recorder
	lease   engine.Lease
	budgets []id.BudgetID
	amounts map[string]int64
	try     *stepTry // that has reserved; nil outside steps
}

// Reserve holds amounts of a budget before the handler uses them, on the budgets above it too, such as the budgets of
// its user and tenant: on all these budgets, or on none. If the amount does not fit on one budget, the result is an
// [budget.HardBreach] and nothing is reserved.
//
//	held, err := job.Reserve(ctx, job.Args.Budget, map[string]int64{budget.OutputTokens: 4000})
//	if err != nil {
//		return "", err
//	}
//	if held.Outcome == budget.HardBreach {
//		return "", errNoMoney
//	}
//	answer, err := ask(ctx, question)
//	if err != nil {
//		return "", err
//	}
//	_, err = held.Settle(ctx, map[string]int64{budget.OutputTokens: answer.Tokens})
//
// A handler may hold several reservations at once. When the handler returns, the worker settles the open ones as
// unused. When a try of a step fails, the worker does so for reservations made with the context of the step's function.
// If the worker dies, open reservations return when the lease ends. A job for a test reserves nothing and never has a
// breach.
//
// Errors: as [budget.Reserve]; [fferr.ErrInvalidInput] within a [Turn], whose Engine reserves with its commit.
func (j Job[In]) Reserve(ctx context.Context, b id.BudgetID, estimate map[string]int64, above ...id.BudgetID) (*Reservation, error) {
	r := &Reservation{
		eng: j.eng, run: j.recorder, lease: j.Lease, budgets: append([]id.BudgetID{b}, above...), amounts: maps.Clone(estimate),
		try:    tryOf(ctx),
		Result: budget.Result{Outcome: budget.Ok},
	}
	switch {
	case j.isForTest():
		return r, nil
	case j.eng == nil:
		return nil, errNoWorker
	}
	if err := j.outsideTurn(ctx); err != nil {
		return nil, err
	}
	// Before the call, whose outcome may be unknown.
	j.steps.reserves(r.budgets)
	var err error
	// The key makes a repetition after an unknown outcome safe.
	spec := budget.ReserveSpec{Budgets: r.budgets, Amounts: r.amounts, Key: uuid.NewString()}
	r.Result, err = repeat(ctx, j.recorder, func() (budget.Result, error) {
		return j.eng.Reserve(ctx, j.Lease.Fence, spec)
	})
	if err != nil {
		return nil, err
	}
	if r.Outcome != budget.HardBreach {
		r.try.add(r)
	}
	return r, nil
}

// Settle ends the reservation and counts the used amounts, by dimension. Amounts up to the reservation always fit. If a
// larger amount does not fit, the result is a [budget.HardBreach], nothing is counted, and the reservation stays. A
// missing dimension was not used. nil gives all back.
//
// Errors: as [budget.Settle].
func (r *Reservation) Settle(ctx context.Context, used map[string]int64) (budget.Result, error) {
	if r.eng == nil {
		return budget.Result{Outcome: budget.Ok}, nil
	}
	r.try.remove(r)
	spec := r.settlement(used)
	spec.Key = cmp.Or(spec.Key, uuid.NewString()) // as the key of the reservation
	result, err := repeat(ctx, r.run, func() (budget.Result, error) { return r.eng.Settle(ctx, r.lease.Fence, spec) })
	r.unsettled(result, err)
	return result, err
}

// unsettled notes that a settlement was refused. After other errors the reservation may have ended.
func (r *Reservation) unsettled(result budget.Result, err error) {
	if errors.Is(err, fferr.ErrInvalidInput) || err == nil && result.Outcome == budget.HardBreach && r.Outcome != budget.HardBreach {
		r.try.add(r)
	}
}

// SettleIn is [Reservation.Settle] in a transaction, usually the transaction of [TurnTx.Engine], which commits a step
// and the usage of its work together.
func (r *Reservation) SettleIn(ctx context.Context, eng *engine.Engine, used map[string]int64) (budget.Result, error) {
	r.try.join(r)
	result, err := budget.Settle(ctx, eng, r.lease.Fence, r.settlement(used))
	r.unsettled(result, err)
	return result, err
}

func (r *Reservation) settlement(used map[string]int64) budget.SettleSpec {
	reserved := r.amounts
	if reserved == nil || r.Outcome == budget.HardBreach {
		reserved = map[string]int64{}
	}
	return budget.SettleSpec{Budgets: r.budgets, Used: used, Reserved: reserved, Key: r.Key}
}

// reserves notes that the run of a handler may have reservations on budgets.
func (s *steps) reserves(budgets []id.BudgetID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range budgets {
		if !slices.Contains(s.reserved, b) {
			s.reserved = append(s.reserved, b)
		}
	}
}

// giveBack settles a handler's open reservations as unused. Otherwise they return with the lease.
func (j Job[In]) giveBack(ctx context.Context, err error) {
	j.steps.mu.Lock()
	budgets := j.steps.reserved
	j.steps.mu.Unlock()
	if len(budgets) == 0 || errors.Is(context.Cause(ctx), ErrLeaseLost) {
		return
	}
	if on, goesOn := isLater(err); goesOn && on.settled != "" {
		return // a turn has ended the lease
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	for some := range slices.Chunk(budgets, budget.MaxBudgets) {
		if _, err := j.eng.Settle(ctx, j.Lease.Fence, budget.SettleSpec{Budgets: some}); err != nil {
			return
		}
	}
}
