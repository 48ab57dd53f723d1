package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/flowfabric/flowfabric-go/budget"
)

// stepTry has the reservations of one try of a step. A failed try gives them back, since the next one reserves again.
// Possibly ended ones are left out, because the database stores one amount for all reservations of a lease on a budget.
type stepTry struct {
	mu     sync.Mutex
	open   []*Reservation
	joined []*Reservation // settled in a transaction that has not ended
}

type tryKey struct{}

// withTry returns the context of a try.
func withTry(ctx context.Context) (context.Context, *stepTry) {
	t := new(stepTry)
	return context.WithValue(ctx, tryKey{}, t), t
}

// tryOf returns the try that a context belongs to, or nil.
func tryOf(ctx context.Context) *stepTry {
	t, _ := ctx.Value(tryKey{}).(*stepTry)
	return t
}

func (t *stepTry) add(r *Reservation) {
	if t != nil {
		t.remove(r)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.open = append(t.open, r)
	}
}

func (t *stepTry) remove(r *Reservation) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		is := func(other *Reservation) bool { return other == r }
		t.open, t.joined = slices.DeleteFunc(t.open, is), slices.DeleteFunc(t.joined, is)
	}
}

// join notes that a reservation ends with a transaction.
func (t *stepTry) join(r *Reservation) {
	if t != nil {
		t.remove(r)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.joined = append(t.joined, r)
	}
}

// rolledBack notes that the transaction of the try was rolled back.
func (t *stepTry) rolledBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open, t.joined = append(t.open, t.joined...), nil
}

// giveBack settles the open reservations as unused. Otherwise they return with the handler or the lease.
func (t *stepTry) giveBack(ctx context.Context) {
	t.mu.Lock()
	open := t.open
	t.open = nil
	t.mu.Unlock()
	if len(open) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	for _, r := range open {
		if _, err := r.eng.Settle(ctx, r.lease.Fence, budget.SettleSpec{Budgets: r.budgets, Reserved: r.amounts}); err != nil {
			return
		}
	}
}
