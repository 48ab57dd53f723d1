package budgets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func of(budgets ...id.BudgetID) []id.BudgetID { return budgets }

func reserve(t *testing.T, eng *engine.Engine, f id.Fence, budgets []id.BudgetID, key string, amounts amounts) budget.Result {
	t.Helper()
	result, err := budget.Reserve(t.Context(), eng, f, budget.ReserveSpec{Budgets: budgets, Amounts: amounts, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func settle(t *testing.T, eng *engine.Engine, f id.Fence, spec budget.SettleSpec) budget.Result {
	t.Helper()
	result, err := budget.Settle(t.Context(), eng, f, spec)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// wantReserved compares what is reserved on a budget, as it is read and as it is stored.
func wantReserved(t *testing.T, f *fixture.Fixture, b id.BudgetID, want amounts) {
	t.Helper()
	if got := read(t, f, b).Reserved; !maps.Equal(got, want) {
		t.Errorf("%v is reserved, want %v", got, want)
	}
	stored := make(amounts)
	for _, row := range fixture.Texts(t, f.Pool, "SELECT dimensions_key || ' ' || amount FROM ffx_budget_reservation WHERE budget_id = $1", b.String()) {
		var dimension string
		var n int64
		if _, err := fmt.Sscan(row, &dimension, &n); err != nil || n <= 0 {
			t.Errorf("stored %q: %v", row, err)
		}
		stored[dimension] += n
	}
	if !maps.Equal(stored, want) {
		t.Errorf("%v is stored as reserved, want %v", stored, want)
	}
}

// breach is the result of a hard breach.
func breach(b id.BudgetID, dimension string, current, reserved, limit int64) budget.Result {
	return budget.Result{Outcome: budget.HardBreach, Budget: b, Dimension: dimension, Current: current, Reserved: reserved, Limit: limit}
}

// byReservations is a breach that would fit if other leases gave back what they have reserved.
func byReservations(breach budget.Result) budget.Result {
	breach.ByReservations = true
	return breach
}

// Reserved amounts count against hard limits for reservations, reports and spends, and become usage up to the amount used.
func TestReservationsCountUntilTheyAreSettled(t *testing.T) {
	f := fixture.New(t)
	l, other := f.Start(t).Lease.Fence, f.Start(t).Lease.Fence
	b := create(t, f, limits{"a": {Hard: 10}, "b": {Soft: 3}})
	report(t, f.Engine, b, "", amounts{"a": 2})
	got := reserve(t, f.Engine, l, of(b), "", amounts{"a": 5, "b": 3, "c": 7})
	wantResult(t, got, budget.Result{Outcome: budget.Ok, Left: amounts{"a": 3, "b": 0}})
	wantReserved(t, f, b, amounts{"a": 5, "b": 3, "c": 7})
	wantUsage(t, f, b, amounts{"a": 2})

	wantResult(t, reserve(t, f.Engine, other, of(b), "", amounts{"a": 4, "c": 1}), byReservations(breach(b, "a", 2, 5, 10)))
	wantResult(t, report(t, f.Engine, b, "", amounts{"a": 4}), byReservations(breach(b, "a", 2, 5, 10)))
	wantResult(t, spend(t, f.Engine, b, l.Execution, "", amounts{"a": 4}), byReservations(breach(b, "a", 2, 5, 10)))
	wantReserved(t, f, b, amounts{"a": 5, "b": 3, "c": 7})
	soft := budget.Result{Outcome: budget.SoftBreach, Budget: b, Dimension: "b", Reserved: 4, Limit: 3}
	wantResult(t, reserve(t, f.Engine, other, of(b), "", amounts{"a": 3, "b": 1}), soft)
	if found := read(t, f, b); found.Breaches != 3 || found.SoftBreaches != 0 || found.LastBreachDimension != "a" {
		t.Errorf("%+v", found)
	}

	got = settle(t, f.Engine, l, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 4}})
	wantResult(t, got, budget.Result{Outcome: budget.Ok, Left: amounts{"a": 1}})
	wantUsage(t, f, b, amounts{"a": 6})
	wantReserved(t, f, b, amounts{"a": 3, "b": 1})
	wantResult(t, settle(t, f.Engine, other, budget.SettleSpec{Budgets: of(b)}), ok)
	wantReserved(t, f, b, amounts{})
	wantUsage(t, f, b, amounts{"a": 6})
}

// Several reservations of a lease add up. A part of them can be settled alone. More than was reserved must fit.
func TestSettlingAPartAndMoreThanReserved(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease.Fence
	b := create(t, f, limits{"a": {Hard: 10, Soft: 7}})
	reserve(t, f.Engine, l, of(b), "", amounts{"a": 3})
	reserve(t, f.Engine, l, of(b), "", amounts{"a": 4})
	wantReserved(t, f, b, amounts{"a": 7})
	// 6 used of 3 are 3 more, and so fit beside the 4.
	wantResult(t, settle(t, f.Engine, l, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 6}, Reserved: amounts{"a": 3}}), ok)
	wantReserved(t, f, b, amounts{"a": 4})
	wantResult(t, settle(t, f.Engine, l, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 5}}), breach(b, "a", 6, 4, 10))
	wantReserved(t, f, b, amounts{"a": 4})
	wantUsage(t, f, b, amounts{"a": 6})
	// The amount reserved fits, even if the limit is lower by now.
	f.Exec(t, `UPDATE ff_budget_policy SET policy_json = jsonb_set(policy_json, '{hard_limits,a}', '1') WHERE budget_id = $1`, b.String())
	soft := budget.Result{Outcome: budget.SoftBreach, Budget: b, Dimension: "a", Current: 10, Limit: 7}
	wantResult(t, settle(t, f.Engine, l, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 4}}), soft)
	wantReserved(t, f, b, amounts{})
	if found := read(t, f, b); found.SoftBreaches != 1 {
		t.Errorf("%+v", found)
	}
}

// All budgets of a tree have room, or nothing is reserved on any, and the result names the budget that has none.
func TestATreeOfBudgetsIsReservedAsAWhole(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease.Fence
	run, user, tenant := create(t, f, limits{"a": {Hard: 9}}), create(t, f, limits{"a": {Hard: 6}}), create(t, f, limits{"a": {Hard: 20}})
	tree := of(run, user, tenant)
	wantResult(t, reserve(t, f.Engine, l, tree, "", amounts{"a": 5}), budget.Result{Outcome: budget.Ok, Left: amounts{"a": 1}})
	wantResult(t, reserve(t, f.Engine, l, tree, "", amounts{"a": 2}), breach(user, "a", 0, 5, 6))
	for _, b := range tree {
		wantReserved(t, f, b, amounts{"a": 5})
	}
	if got := []int64{read(t, f, run).Breaches, read(t, f, user).Breaches, read(t, f, tenant).Breaches}; !slices.Equal(got, []int64{0, 1, 0}) {
		t.Errorf("breaches %v", got)
	}
	wantResult(t, settle(t, f.Engine, l, budget.SettleSpec{Budgets: tree, Used: amounts{"a": 7}}), breach(user, "a", 0, 5, 6))
	for _, b := range tree {
		wantReserved(t, f, b, amounts{"a": 5})
		wantUsage(t, f, b, amounts{})
	}
	wantResult(t, settle(t, f.Engine, l, budget.SettleSpec{Budgets: tree, Used: amounts{"a": 6}}), ok)
	for _, b := range tree {
		wantReserved(t, f, b, amounts{})
		wantUsage(t, f, b, amounts{"a": 6})
	}
}

// However a lease ends, its reservation returns, once it is due: to a reservation that needs it, or by the job.
func TestReservationsReturnWithTheirLease(t *testing.T) {
	type ended struct {
		name string
		end  func(*testing.T, *fixture.Fixture, engine.Lease)
	}
	for _, test := range []ended{
		{"complete", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
		}},
		{"fail", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if _, err := f.FailExecution(t.Context(), l, engine.Failure{Message: "x", Class: policy.Permanent}); err != nil {
				t.Fatal(err)
			}
		}},
		{"release", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{l}); err != nil || outcomes[0] != nil {
				t.Fatal(outcomes, err)
			}
		}},
		{"cancel", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
				t.Fatal(err)
			}
		}},
		{"the process dies", func(*testing.T, *fixture.Fixture, engine.Lease) {}},
		{"another worker takes over", func(t *testing.T, f *fixture.Fixture, _ engine.Lease) {
			f.Advance(fixture.LeaseTTL)
			if _, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			f.ClaimN(t, 2)
		}},
		{"retention deletes the execution", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.Exec(t, "DELETE FROM ff_attempt WHERE execution_id = $1", l.Execution.UUID())
		}},
	} {
		for _, job := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, job %v", test.name, job), func(t *testing.T) {
				f := fixture.NewCloned(t)
				held, next := f.Start(t).Lease, f.Start(t).Lease
				b := create(t, f, limits{"a": {Hard: 10}})
				reserve(t, f.Engine, held.Fence, of(b), "", amounts{"a": 10})
				test.end(t, f, held)
				if now := f.Time(); now.Before(fixture.Start.Add(fixture.LeaseTTL)) {
					f.Advance(fixture.Start.Add(fixture.LeaseTTL).Sub(now) - time.Millisecond)
					if n, err := upkeep.Of(f.Engine).ReleaseReservations(t.Context(), 10); n != 0 || err != nil {
						t.Errorf("released %d early, %v", n, err)
					}
					if _, err := f.RenewLease(t.Context(), next, time.Minute); err != nil {
						t.Fatal(err)
					}
					f.Advance(time.Millisecond)
				} else {
					next = f.Start(t).Lease
				}
				if job {
					if n, err := upkeep.Of(f.Engine).ReleaseReservations(t.Context(), 10); n != 1 || err != nil {
						t.Errorf("released %d, %v", n, err)
					}
					wantReserved(t, f, b, amounts{})
				}
				wantResult(t, reserve(t, f.Engine, next.Fence, of(b), "", amounts{"a": 10}), ok)
				wantReserved(t, f, b, amounts{"a": 10})
				if n := read(t, f, b).Breaches; n != 0 {
					t.Errorf("%d breaches", n)
				}
				_, err := budget.Settle(t.Context(), f.Engine, held.Fence, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 1}})
				if _, lost := errors.AsType[*fferr.LeaseError](err); !lost && !errors.Is(err, fferr.ErrNotFound) {
					t.Errorf("a lost lease settles: %v", err)
				}
				wantUsage(t, f, b, amounts{})
				wantReserved(t, f, b, amounts{"a": 10})
			})
		}
	}
}

// The reservation of a renewed lease outlives the end that it was written with.
func TestReservationsOfRenewedLeasesStay(t *testing.T) {
	f := fixture.NewCloned(t)
	held, next := f.Start(t).Lease, f.Start(t).Lease
	b := create(t, f, limits{"a": {Hard: 10}})
	reserve(t, f.Engine, held.Fence, of(b), "", amounts{"a": 10})
	f.Advance(fixture.LeaseTTL / 2)
	for _, l := range []engine.Lease{held, next} {
		if _, err := f.RenewLease(t.Context(), l, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	f.Advance(fixture.LeaseTTL / 2)
	wantResult(t, reserve(t, f.Engine, next.Fence, of(b), "", amounts{"a": 1}), byReservations(breach(b, "a", 0, 10, 10)))
	due := f.Start(t).Lease
	reserve(t, f.Engine, due.Fence, of(create(t, f, nil)), "", amounts{"a": 1})
	f.Advance(fixture.LeaseTTL)
	if n, err := upkeep.Of(f.Engine).ReleaseReservations(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	wantReserved(t, f, b, amounts{"a": 10})
	wantResult(t, settle(t, f.Engine, held.Fence, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 10}}), ok)
}

// A key makes a repetition by the same lease safe. The reservation of another lease is a new one, and what another lease has
// settled isn't counted again.
func TestRepetitionsOfReservations(t *testing.T) {
	f := fixture.New(t)
	l, other := f.Start(t).Lease.Fence, f.Start(t).Lease.Fence
	b := create(t, f, limits{"a": {Hard: 10}})
	for range 2 {
		wantResult(t, reserve(t, f.Engine, l, of(b), "k", amounts{"a": 4}), budget.Result{Outcome: budget.Ok, Left: amounts{"a": 6}})
		wantResult(t, reserve(t, f.Engine, l, of(b), "hard", amounts{"a": 7}), breach(b, "a", 0, 4, 10))
	}
	wantReserved(t, f, b, amounts{"a": 4})
	wantResult(t, reserve(t, f.Engine, other, of(b), "k", amounts{"a": 4}), ok)
	wantReserved(t, f, b, amounts{"a": 8})
	for range 2 {
		wantResult(t, settle(t, f.Engine, l, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 3}, Key: "s"}), ok)
		wantUsage(t, f, b, amounts{"a": 3})
		wantReserved(t, f, b, amounts{"a": 4})
	}
	wantResult(t, settle(t, f.Engine, other, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 3}, Key: "s"}), ok)
	wantUsage(t, f, b, amounts{"a": 3})
	wantReserved(t, f, b, amounts{})
	if got := read(t, f, b).Breaches; got != 1 {
		t.Errorf("%d breaches", got)
	}
	if err := f.CompleteExecution(t.Context(), engine.Lease{Fence: l}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := budget.Reserve(t.Context(), f.Engine, l, budget.ReserveSpec{Budgets: of(b), Key: "k"}); !errors.Is(err, fferr.ErrNotActive) && !errors.Is(err, fferr.ErrStaleLease) {
		t.Errorf("the key is asked before the lease: %v", err)
	}
}

// A reservation in a caller's transaction exists with it or not at all, and a refused one leaves the transaction usable.
func TestReservationsInACallersTransaction(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease.Fence
	b := create(t, f, limits{"a": {Hard: 10}})
	rolledBack := errors.New("roll back")
	err := f.InTx(t.Context(), func(_ pgx.Tx, eng *engine.Engine) error {
		wantResult(t, reserve(t, eng, l, of(b), "k", amounts{"a": 6}), ok)
		wantResult(t, reserve(t, eng, l, of(b), "", amounts{"a": 6}), breach(b, "a", 0, 6, 10))
		stale := l
		stale.Epoch--
		if _, err := budget.Reserve(t.Context(), eng, stale, budget.ReserveSpec{Budgets: of(b)}); !errors.Is(err, fferr.ErrStaleLease) {
			t.Error(err)
		}
		wantResult(t, settle(t, eng, l, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 2}}), ok)
		return rolledBack
	})
	if !errors.Is(err, rolledBack) {
		t.Fatal(err)
	}
	wantReserved(t, f, b, amounts{})
	wantUsage(t, f, b, amounts{})
	err = f.InTx(t.Context(), func(_ pgx.Tx, eng *engine.Engine) error {
		reserve(t, eng, l, of(b), "k", amounts{"a": 6})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantReserved(t, f, b, amounts{"a": 6})
}

// A transaction that repeats its reads doesn't decide from reservations that it can't see.
func TestReservationsAtRepeatableRead(t *testing.T) {
	f := fixture.New(t)
	l, other := f.Start(t).Lease.Fence, f.Start(t).Lease.Fence
	b := create(t, f, limits{"a": {Hard: 10}})
	for name, call := range map[string]func(eng *engine.Engine) error{
		"reserve": func(eng *engine.Engine) error {
			_, err := budget.Reserve(t.Context(), eng, l, budget.ReserveSpec{Budgets: of(b), Amounts: amounts{"a": 6}})
			return err
		},
		"report": func(eng *engine.Engine) error {
			_, err := budget.Report(t.Context(), eng, budget.Usage{Budget: b, Amounts: amounts{"a": 6}})
			return err
		},
	} {
		tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		fixture.ExecIn(t, tx, "SELECT 1 FROM ff_budget_policy LIMIT 1")
		reserve(t, f.Engine, other, of(b), "", amounts{"a": 6})
		if err := call(f.WithTx(tx)); err == nil {
			t.Errorf("%s: not refused", name)
		}
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		settle(t, f.Engine, other, budget.SettleSpec{Budgets: of(b)})
	}
}

// Input that can't be reserved is refused.
func TestReservationsRefuseBadInput(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease.Fence
	b := create(t, f, nil)
	many := make([]id.BudgetID, budget.MaxBudgets+1)
	for i := range many {
		many[i] = id.NewBudgetID()
	}
	for name, spec := range map[string]budget.ReserveSpec{
		"no budget": {}, "an empty budget": {Budgets: of(id.BudgetID{})}, "a budget twice": {Budgets: of(b, b)}, "too many": {Budgets: many},
		"negative": {Budgets: of(b), Amounts: amounts{"a": -1}}, "no name": {Budgets: of(b), Amounts: amounts{"": 1}},
		"a long key": {Budgets: of(b), Key: strings.Repeat("k", 513)},
	} {
		if _, err := budget.Reserve(t.Context(), f.Engine, l, spec); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("reserve, %s: %v", name, err)
		}
		if _, err := budget.Settle(t.Context(), f.Engine, l, budget.SettleSpec{Budgets: spec.Budgets, Used: spec.Amounts, Key: spec.Key}); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("settle, %s: %v", name, err)
		}
	}
	if _, err := budget.Settle(t.Context(), f.Engine, l, budget.SettleSpec{Budgets: of(b), Reserved: amounts{"a": -1}}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Error(err)
	}
	if _, err := budget.Reserve(t.Context(), f.Engine, id.Fence{}, budget.ReserveSpec{Budgets: of(b)}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Error(err)
	}
}
