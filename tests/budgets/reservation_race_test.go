package budgets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A reservation, a report, a reset and a settlement that meet on a budget happen one after the other, in every order of two:
// the second waits for the first and decides from what that has left.
func TestReservationsMeetOtherCalls(t *testing.T) {
	f := fixture.New(t)
	type call struct {
		name string
		do   func(ctx context.Context, eng *engine.Engine, b id.BudgetID, l id.Fence) (budget.Outcome, error)
	}
	calls := []call{
		{"reserve", func(ctx context.Context, eng *engine.Engine, b id.BudgetID, l id.Fence) (budget.Outcome, error) {
			r, err := budget.Reserve(ctx, eng, l, budget.ReserveSpec{Budgets: of(b), Amounts: amounts{"a": 4}})
			return r.Outcome, err
		}},
		{"report", func(ctx context.Context, eng *engine.Engine, b id.BudgetID, _ id.Fence) (budget.Outcome, error) {
			r, err := budget.Report(ctx, eng, budget.Usage{Budget: b, Amounts: amounts{"a": 4}})
			return r.Outcome, err
		}},
		{"settle", func(ctx context.Context, eng *engine.Engine, b id.BudgetID, l id.Fence) (budget.Outcome, error) {
			r, err := budget.Settle(ctx, eng, l, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 2}})
			return r.Outcome, err
		}},
		{"reset", func(ctx context.Context, eng *engine.Engine, b id.BudgetID, _ id.Fence) (budget.Outcome, error) {
			_, err := budget.Reset(ctx, eng, b)
			return budget.Ok, err
		}},
	}
	// Of 11, 3 are used and 4 reserved, so another 4 fit only after a settlement of 2 or a reset.
	hard := map[string]bool{"reserve reserve": true, "reserve report": true, "report reserve": true, "report report": true}
	for _, first := range calls {
		for _, second := range calls {
			name := first.name + " " + second.name
			t.Run(name, func(t *testing.T) {
				r := f.Rival(t)
				lane := f.StartMany(t, 2)
				b := create(t, f, limits{"a": {Hard: 11}})
				report(t, f.Engine, b, "", amounts{"a": 3})
				reserve(t, f.Engine, lane[0].Lease.Fence, of(b), "", amounts{"a": 4})
				tx := f.BeginTx(t)
				if got, err := first.do(t.Context(), f.WithTx(tx), b, lane[0].Lease.Fence); err != nil || got != budget.Ok {
					t.Fatal(got, err)
				}
				type answer struct {
					outcome budget.Outcome
					err     error
				}
				wait := fixture.Async(t, func(ctx context.Context) answer {
					outcome, err := second.do(ctx, r.Engine, b, lane[0].Lease.Fence)
					return answer{outcome, err}
				})
				r.AwaitBlocked(t, f)
				fixture.Commit(t, tx)
				want := budget.Ok
				if hard[name] {
					want = budget.HardBreach
				}
				if got := wait(); got.err != nil || got.outcome != want {
					t.Errorf("got %+v, want %s", got, want)
				}
				held(t, f, b)
			})
		}
	}
}

// held checks that usage and reservations of a budget don't exceed its hard limits.
func held(t *testing.T, f *fixture.Fixture, b id.BudgetID) {
	t.Helper()
	found := read(t, f, b)
	for d, limit := range found.Limits {
		if sum := found.Usage[d] + found.Reserved[d]; limit.Hard > 0 && sum > limit.Hard {
			t.Errorf("%s of %s: %d used and %d reserved of %d", d, b, found.Usage[d], found.Reserved[d], limit.Hard)
		}
	}
}

// Two trees that name the same budgets in opposite order lock them in one order.
func TestTreesInOppositeOrderDontDeadlock(t *testing.T) {
	f := fixture.New(t)
	r := f.Rival(t)
	l := f.StartMany(t, 2)
	budgets := of(create(t, f, limits{"a": {Hard: 10}}), create(t, f, limits{"a": {Hard: 10}}), id.NewBudgetID())
	reversed := slices.Clone(budgets)
	slices.Reverse(reversed)
	tx := f.BeginTx(t)
	reserve(t, f.WithTx(tx), l[0].Lease.Fence, budgets, "", amounts{"a": 6})
	second := fixture.Async(t, func(ctx context.Context) budget.Result {
		result, err := budget.Reserve(ctx, r.Engine, l[1].Lease.Fence, budget.ReserveSpec{Budgets: reversed, Amounts: amounts{"a": 6}})
		if err != nil {
			t.Error(err)
		}
		return result
	})
	r.AwaitBlocked(t, f)
	wantResult(t, settle(t, f.WithTx(tx), l[0].Lease.Fence, budget.SettleSpec{Budgets: reversed, Used: amounts{"a": 5}}), ok)
	fixture.Commit(t, tx)
	wantResult(t, second(), breach(budgets[1], "a", 5, 0, 10))
}

// Reservations, settlements and reports that wait for each other share transactions, for leases of several workers too. A lease
// that is lost and an attempt that another transaction holds fail or wait alone.
func TestReservationsShareATransaction(t *testing.T) {
	f := fixture.New(t)
	log := new(fixture.StatementLog)
	r := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
	l := f.StartMany(t, 4)
	b := create(t, f, limits{"a": {Hard: 10}})
	stale := l[0].Lease.Fence
	stale.Epoch--
	locked := f.BeginTx(t)
	fixture.ExecIn(t, locked, "SELECT FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE", l[3].ID.Partition(), l[3].ID.UUID())
	type answer struct {
		result budget.Result
		err    error
	}
	reserving := func(l id.Fence, key string, n int64) func(context.Context) answer {
		return func(ctx context.Context) answer {
			result, err := budget.Reserve(ctx, r.Engine, l, budget.ReserveSpec{Budgets: of(b), Key: key, Amounts: amounts{"a": n}})
			return answer{result, err}
		}
	}
	var waits []func() answer
	var waiting func() answer
	sent := log.During(func() {
		unlock := lockBudget(t, f, b)
		for i, call := range []func(context.Context) answer{
			reserving(l[0].Lease.Fence, "", 4),
			reserving(l[1].Lease.Fence, "", 4),
			reserving(stale, "stale", 1),
			reserving(l[2].Lease.Fence, "", 4),
			func(ctx context.Context) answer {
				result, err := budget.Settle(ctx, r.Engine, l[0].Lease.Fence, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 1}})
				return answer{result, err}
			},
			reserving(l[2].Lease.Fence, "", 4),
			reserving(l[3].Lease.Fence, "busy", 1),
		} {
			wait := fixture.Async(t, call)
			if i == 6 {
				waiting = wait
			} else {
				waits = append(waits, wait)
			}
			if i == 0 {
				r.AwaitBlocked(t, f)
			} else {
				fixture.Await(t, "a call to wait", func() bool { return waitingReports(r.Engine) == i })
			}
		}
		unlock()
		for i, want := range []budget.Result{ok, ok, {}, byReservations(breach(b, "a", 0, 8, 10)), ok, ok} {
			got := waits[i]()
			if i == 2 {
				if !errors.Is(got.err, fferr.ErrStaleLease) {
					t.Errorf("the stale lease: %+v", got)
				}
			} else if got.err != nil {
				t.Errorf("%d: %v", i, got.err)
			} else {
				wantResult(t, got.result, want)
			}
		}
		r.AwaitBlocked(t, f)
		fixture.Commit(t, locked)
		if got := waiting(); got.err != nil {
			t.Error(got.err)
		} else {
			wantResult(t, got.result, ok)
		}
	})
	wantUsage(t, f, b, amounts{"a": 1})
	wantReserved(t, f, b, amounts{"a": 9})
	// The key of a refused call is free again.
	wantResult(t, reserve(t, r.Engine, l[0].Lease.Fence, of(b), "stale", amounts{"a": 0}), ok)
	count := make(map[string]int)
	for _, name := range fixture.Names(sent) {
		count[name]++
	}
	for name, want := range map[string]int{"TakeReservers": 2, "LockReservers": 1, "LockBudget": 3, "ReadReserved": 3, "AddReservations": 3, "ReduceReservations": 1, "AddBudgetUsage": 1} {
		if count[name] != want {
			t.Errorf("sent %d of %s, want %d: %v", count[name], name, want, count)
		}
	}
}

// A renewal doesn't wait for a reservation that is not committed.
func TestRenewalsDontWaitForReservations(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	tx := f.BeginTx(t)
	reserve(t, f.WithTx(tx), l.Fence, of(create(t, f, nil)), "", amounts{"a": 1})
	if outcomes, err := f.RenewLeases(t.Context(), []engine.Renewal{{Lease: l}}); err != nil || outcomes[0].Err != nil {
		t.Errorf("%+v, %v", outcomes, err)
	}
}

// A job that finds a reservation due leaves it alone while its lease is being renewed.
func TestReservationsOfALeaseThatIsBeingRenewedStay(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	b := create(t, f, nil)
	reserve(t, f.Engine, l.Fence, of(b), "", amounts{"a": 1})
	f.Advance(fixture.LeaseTTL - 1)
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).RenewLease(t.Context(), l, fixture.LeaseTTL); err != nil {
		t.Fatal(err)
	}
	f.Advance(1)
	if n, err := upkeep.Of(f.Engine).ReleaseReservations(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	fixture.Commit(t, tx)
	wantReserved(t, f, b, amounts{"a": 1})
}

// 64 reservers of two processes never overspend, and nothing that fits is refused: what others have checked but not yet used
// counts, and a reservation that was given back is free at once.
func TestConcurrentReserversNeverOverspend(t *testing.T) {
	f := fixture.New(t)
	const callers, calls, limit = 64, 2000, 100
	engines := []*engine.Engine{f.Rival(t).Engine, f.Rival(t).Engine}
	leases := f.StartMany(t, callers)
	b := create(t, f, limits{"a": {Hard: limit}})
	outcomes := together(t, callers, calls, func(ctx context.Context, n int) (budget.Result, error) {
		e, l := engines[n%2], leases[n%callers].Lease.Fence
		result, err := budget.Reserve(ctx, e, l, budget.ReserveSpec{Budgets: of(b), Amounts: amounts{"a": 3}})
		if err != nil || result.Outcome == budget.HardBreach {
			if err == nil && result.Current+result.Reserved+3 <= limit {
				err = fmt.Errorf("refused although it fits: %+v", result)
			}
			return result, err
		}
		result, err = budget.Settle(ctx, e, l, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": int64(n % 2)}})
		if err == nil && result.Outcome != budget.Ok {
			err = fmt.Errorf("not settled: %+v", result)
		}
		return result, err
	})
	found := read(t, f, b)
	if found.Usage["a"] > limit || found.Breaches != int64(outcomes[budget.HardBreach]) {
		t.Errorf("%+v, %v", found, outcomes)
	}
	wantReserved(t, f, b, amounts{})
	wantResult(t, reserve(t, f.Engine, leases[0].Lease.Fence, of(b), "", amounts{"a": limit - found.Usage["a"]}), ok)
}

// A turn stores its step and settles the reservation, or does neither.
func TestASettlementJoinsItsStep(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	b := create(t, f, limits{"a": {Hard: 10}})
	reserve(t, f.Engine, l.Fence, of(b), "", amounts{"a": 5})
	record := engine.StepRecord{Lease: l, Name: "ask"}
	turn := func(fail error) error {
		_, err := f.InStep(t.Context(), func(_ pgx.Tx, eng *engine.Engine) (engine.StepRecord, error) {
			settle(t, eng, l.Fence, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 3}})
			return record, fail
		}, nil)
		return err
	}
	failed := errors.New("failed")
	if err := turn(failed); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	wantReserved(t, f, b, amounts{"a": 5})
	for range 2 { // the second one finds the step, and so settles nothing
		if err := turn(nil); err != nil {
			t.Fatal(err)
		}
		wantReserved(t, f, b, amounts{})
		wantUsage(t, f, b, amounts{"a": 3})
	}
}
