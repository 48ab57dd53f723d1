package budgets

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func cancelling(s *budget.Spec) { s.CancelOnBreach = true }

func under(budgets ...id.BudgetID) func(*engine.ExecutionSpec) {
	return func(s *engine.ExecutionSpec) { s.Budgets = budgets }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func admit(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	if _, err := upkeep.Of(f.Engine).AdmitWaiting(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
}

// started creates an execution under budgets, lets it in and claims it.
func started(t *testing.T, f *fixture.Fixture, budgets ...id.BudgetID) engine.Claimed {
	t.Helper()
	x := f.Create(t, under(budgets...))
	admit(t, f)
	claimed := f.ClaimOne(t)
	if claimed.ID != x {
		t.Fatalf("claimed %s, want %s", claimed.ID, x)
	}
	return claimed
}

// wantCancelled compares the executions that are cancelled, each for a budget.
func wantCancelled(t *testing.T, f *fixture.Fixture, b id.BudgetID, all []id.ExecutionID, want ...id.ExecutionID) {
	t.Helper()
	var got []id.ExecutionID
	for _, x := range all {
		s, err := f.DescribeExecution(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if s.State.Public != state.PublicCancelled {
			continue
		}
		got = append(got, x)
		if s.CancelledBy != budget.CancelSource || !strings.Contains(s.CancellationReason, b.String()) {
			t.Errorf("%s was cancelled by %q: %q", x, s.CancelledBy, s.CancellationReason)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("cancelled %v, want %v", got, want)
	}
}

func admissions(t *testing.T, f *fixture.Fixture) []string {
	t.Helper()
	return fixture.Texts(t, f.Pool, "SELECT execution_id || ' ' || (due_at_ms = 0)::text FROM ffx_budget_admission ORDER BY 1")
}

// breaches are the calls by a lease that are a breach of a hard limit if they would exceed it.
var breaches = map[string]func(t *testing.T, eng *engine.Engine, l engine.Lease, b id.BudgetID, n int64) budget.Result{
	"report": func(t *testing.T, eng *engine.Engine, _ engine.Lease, b id.BudgetID, n int64) budget.Result {
		t.Helper()
		return report(t, eng, b, "", amounts{"a": n})
	},
	"spend": func(t *testing.T, eng *engine.Engine, l engine.Lease, b id.BudgetID, n int64) budget.Result {
		t.Helper()
		return spend(t, eng, b, l.Execution, "", amounts{"a": n})
	},
	"settlement": func(t *testing.T, eng *engine.Engine, l engine.Lease, b id.BudgetID, n int64) budget.Result {
		t.Helper()
		return settle(t, eng, l.Fence, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": n}})
	},
}

// A breach cancels what runs under the budget or may be claimed, by any call, and nothing else: not what waits for the budget,
// not what runs under another one, and not what waits for something else.
func TestABreachCancelsWorkInFlight(t *testing.T) {
	for name, call := range breaches {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			b, other := create(t, f, limits{"a": {Hard: 10}}, cancelling), create(t, f, limits{"a": {Hard: 10}}, cancelling)
			running, second, elsewhere, delayed := started(t, f, b), started(t, f, b, other), started(t, f, other), started(t, f, b)
			must(t, f.DelayExecution(t.Context(), delayed.Lease, f.Time().Add(time.Hour)))
			claimable := f.Create(t, under(b))
			admit(t, f)
			waiting := f.Create(t, under(b))
			all := []id.ExecutionID{running.ID, second.ID, elsewhere.ID, delayed.ID, claimable, waiting}
			if got := call(t, f.Engine, running.Lease, b, 9); got.Outcome != budget.Ok {
				t.Fatalf("%+v", got)
			}
			f.Flush()
			wantCancelled(t, f, b, all)
			if got := call(t, f.Engine, running.Lease, b, 5); got.Outcome != budget.HardBreach {
				t.Fatalf("%+v", got)
			}
			f.Flush()
			wantCancelled(t, f, b, all, running.ID, second.ID, claimable)
			// What is left are the admissions of those that go on, and of one that was cancelled under its other budget.
			if got := admissions(t, f); len(got) != 2 || !slices.Contains(got, elsewhere.ID.UUID().String()+" false") {
				t.Errorf("%v", got)
			}
		})
	}
}

// Usage that reaches a hard limit cancels too; reservations that reach it don't, since they may return.
func TestExhaustionCancelsAndReservationsDont(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}, "b": {Hard: 10}}, cancelling)
	x := started(t, f, b)
	reserve(t, f.Engine, x.Lease.Fence, of(b), "", amounts{"a": 10})
	f.Flush()
	wantCancelled(t, f, b, []id.ExecutionID{x.ID})
	settle(t, f.Engine, x.Lease.Fence, budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 10}})
	f.Flush()
	wantCancelled(t, f, b, []id.ExecutionID{x.ID}, x.ID)
}

// Only usage is a breach. A reservation, a report or a settlement that has no room because of reservations is refused, says so, and
// cancels nothing; neither does a reservation above the limit. Once the usage is at the limit, as after a limit was lowered, any of
// them cancels. L8
func TestRefusalsBecauseOfReservationsCancelNothing(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}, "b": {Hard: 10}}, cancelling)
	x, y := started(t, f, b), started(t, f, b)
	all := []id.ExecutionID{x.ID, y.ID}
	report(t, f.Engine, b, "", amounts{"a": 1})
	reserve(t, f.Engine, x.Lease.Fence, of(b), "", amounts{"a": 8})
	reserving := func(l engine.Lease, of amounts) budget.Result {
		return reserve(t, f.Engine, l.Fence, []id.BudgetID{b}, "", of)
	}
	wantResult(t, reserving(y.Lease, amounts{"a": 2}), byReservations(breach(b, "a", 1, 8, 10)))
	wantResult(t, reserving(x.Lease, amounts{"a": 2}), breach(b, "a", 1, 8, 10))
	wantResult(t, reserving(y.Lease, amounts{"a": 10}), breach(b, "a", 1, 8, 10))
	wantResult(t, reserving(y.Lease, amounts{"a": 2, "b": 11}), breach(b, "a", 1, 8, 10))
	wantResult(t, report(t, f.Engine, b, "", amounts{"a": 2}), byReservations(breach(b, "a", 1, 8, 10)))
	wantResult(t, spend(t, f.Engine, b, y.ID, "", amounts{"a": 2}), byReservations(breach(b, "a", 1, 8, 10)))
	settling := budget.SettleSpec{Budgets: of(b), Used: amounts{"a": 2}}
	wantResult(t, settle(t, f.Engine, y.Lease.Fence, settling), byReservations(breach(b, "a", 1, 8, 10)))
	f.Flush()
	wantCancelled(t, f, b, all)
	f.Exec(t, `UPDATE ff_budget_policy SET policy_json = jsonb_set(policy_json, '{hard_limits,a}', '1') WHERE budget_id = $1`, b.String())
	wantResult(t, reserving(y.Lease, amounts{"a": 1}), breach(b, "a", 1, 8, 1))
	f.Flush()
	wantCancelled(t, f, b, all, x.ID, y.ID)
}

// In a tree a refusal is one by reservations only if that holds for all budgets without room.
func TestRefusalsInATreeSayWhetherReservationsRefuse(t *testing.T) {
	f := fixture.NewCloned(t)
	run, user := create(t, f, limits{"a": {Hard: 10}}, cancelling), create(t, f, limits{"a": {Hard: 10}}, cancelling)
	x, other := started(t, f, user), f.Start(t)
	reserve(t, f.Engine, other.Lease.Fence, of(run, user), "", amounts{"a": 8})
	l := x.Lease.Fence
	wantResult(t, reserve(t, f.Engine, l, of(run, user), "", amounts{"a": 5}), byReservations(breach(run, "a", 0, 8, 10)))
	settle(t, f.Engine, other.Lease.Fence, budget.SettleSpec{Budgets: of(user), Used: amounts{"a": 8}})
	wantResult(t, reserve(t, f.Engine, l, of(run, user), "", amounts{"a": 5}), breach(run, "a", 0, 8, 10))
	f.Flush()
	wantCancelled(t, f, user, []id.ExecutionID{x.ID})
	// The settlement of the first budget is refused by reservations, the settlement of the second by usage, which cancels.
	got := settle(t, f.Engine, l, budget.SettleSpec{Budgets: of(run, user), Used: amounts{"a": 5}})
	wantResult(t, got, breach(run, "a", 0, 8, 10))
	f.Flush()
	wantCancelled(t, f, user, []id.ExecutionID{x.ID}, x.ID)
}

// Of a tree, the executions under the budget without room are cancelled.
func TestABreachInATreeCancelsUnderItsBudget(t *testing.T) {
	f := fixture.NewCloned(t)
	run, user := create(t, f, limits{"a": {Hard: 100}}, cancelling), create(t, f, limits{"a": {Hard: 10}}, cancelling)
	own, sibling := started(t, f, run), started(t, f, user)
	all := []id.ExecutionID{own.ID, sibling.ID}
	if got := settle(t, f.Engine, own.Lease.Fence, budget.SettleSpec{Budgets: of(run, user), Used: amounts{"a": 11}}); got.Outcome != budget.HardBreach {
		t.Fatalf("%+v", got)
	}
	f.Flush()
	wantCancelled(t, f, user, all, sibling.ID)
}

// Without the option nothing is cancelled, and nothing is stored for it.
func TestWithoutTheOptionABreachCancelsNothing(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}})
	x := started(t, f, b)
	for _, call := range breaches {
		if got := call(t, f.Engine, x.Lease, b, 11); got.Outcome != budget.HardBreach {
			t.Fatalf("%+v", got)
		}
	}
	f.Flush()
	if n, err := upkeep.Of(f.Engine).CancelOverBudget(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	wantCancelled(t, f, b, []id.ExecutionID{x.ID})
	if got := admissions(t, f); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// A breach in a caller's transaction cancels once that is committed, by the job, and never if it is rolled back. One of InTx
// asks for the job at once.
func TestABreachInACallersTransaction(t *testing.T) {
	for name, call := range breaches {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			b := create(t, f, limits{"a": {Hard: 10}}, cancelling)
			x := started(t, f, b)
			all := []id.ExecutionID{x.ID}
			job := func() (n int) {
				n, err := upkeep.Of(f.Engine).CancelOverBudget(t.Context(), 10)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			tx := f.BeginTx(t)
			call(t, f.WithTx(tx), x.Lease, b, 11)
			must(t, tx.Rollback(t.Context()))
			f.Flush()
			if n := job(); n != 0 {
				t.Errorf("%d after a rollback", n)
			}
			wantCancelled(t, f, b, all)
			if err := f.InTx(t.Context(), func(_ pgx.Tx, eng *engine.Engine) error {
				call(t, eng, x.Lease, b, 11)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-upkeep.Of(f.Engine).OverBudget():
			default:
				t.Error("the job was not asked for")
			}
			wantCancelled(t, f, b, all)
			for want := 1; want >= 0; want-- { // the second call finds nothing
				if n := job(); n != want {
					t.Errorf("%d, want %d", n, want)
				}
				wantCancelled(t, f, b, all, x.ID)
			}
		})
	}
}

// If the process ends between a breach and the cancellations, the job of another one cancels. A second breach adds nothing.
func TestACrashAfterABreachLosesNoCancellation(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}}, cancelling)
	x, y := started(t, f, b), started(t, f, b)
	all := []id.ExecutionID{x.ID, y.ID}
	// A transaction of the program's own stands for the process: it commits, and does nothing more.
	tx := f.BeginTx(t)
	for range 2 {
		if got := report(t, f.WithTx(tx), b, "", amounts{"a": 11}); got.Outcome != budget.HardBreach {
			t.Fatalf("%+v", got)
		}
	}
	fixture.Commit(t, tx)
	wantCancelled(t, f, b, all)
	taken, err := upkeep.Of(f.Engine).TakeJobs(t.Context(), upkeep.JobSpec{
		Holder: id.WorkerInstanceID(f.Name), Hold: time.Minute, Jobs: []upkeep.Job{upkeep.JobCancelOverBudget},
	})
	if due := taken.Jobs[upkeep.JobCancelOverBudget].Due; err != nil || due.IsZero() || due.After(taken.Now) {
		t.Errorf("due %v, %v", due, err)
	}
	if n, err := upkeep.Of(f.Rival(t).Engine).CancelOverBudget(t.Context(), 10); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	wantCancelled(t, f, b, all, x.ID, y.ID)
	report(t, f.Engine, b, "", amounts{"a": 11})
	f.Flush()
	if n, err := upkeep.Of(f.Engine).CancelOverBudget(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// An execution that is locked is cancelled later, and keeps none of the others waiting.
func TestALockedExecutionIsCancelledLater(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}}, cancelling)
	x, y := started(t, f, b), started(t, f, b)
	all := []id.ExecutionID{x.ID, y.ID}
	tx := f.BeginTx(t)
	report(t, f.WithTx(tx), b, "", amounts{"a": 11})
	fixture.Commit(t, tx)
	lock := f.BeginTx(t)
	fixture.ExecIn(t, lock, "SELECT FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE", x.ID.Partition(), x.ID.UUID())
	short := f.Rival(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "1" })
	if n, err := upkeep.Of(short.Engine).CancelOverBudget(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	wantCancelled(t, f, b, all, y.ID)
	must(t, lock.Rollback(t.Context()))
	if n, err := upkeep.Of(short.Engine).CancelOverBudget(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	wantCancelled(t, f, b, all, x.ID, y.ID)
}

// The job looks at admissions 15 seconds after each look: those of ended executions go, those of running ones stay.
func TestAdmissionsAreForgottenAfterTheirExecutions(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}}, cancelling)
	x, y := started(t, f, b), started(t, f, b)
	must(t, f.CompleteExecution(t.Context(), x.Lease, nil))
	for _, c := range []struct {
		after time.Duration
		drops int
		want  int
	}{{15*time.Second - time.Millisecond, 0, 2}, {time.Millisecond, 1, 1}, {15 * time.Second, 0, 1}, {time.Minute, 0, 1}} {
		f.Advance(c.after)
		if n, err := upkeep.Of(f.Engine).CancelOverBudget(t.Context(), 10); n != c.drops || err != nil {
			t.Errorf("after %s: %d, %v", c.after, n, err)
		}
		if got := admissions(t, f); len(got) != c.want || !slices.Contains(got, fmt.Sprintf("%s false", y.ID.UUID())) {
			t.Errorf("after %s: %v", c.after, got)
		}
	}
	wantCancelled(t, f, b, []id.ExecutionID{x.ID, y.ID})
}

// Many executions are cancelled by pages.
func TestABreachCancelsPages(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}}, cancelling)
	var all []id.ExecutionID
	for range 205 {
		all = append(all, f.Create(t, under(b)))
	}
	for range 3 {
		admit(t, f)
	}
	report(t, f.Engine, b, "", amounts{"a": 11})
	f.Flush()
	wantCancelled(t, f, b, all, all...)
	if got := admissions(t, f); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// The option is a key of this library in the stored policy, and only in policies that have it.
func TestTheOptionIsStoredAndRead(t *testing.T) {
	f := fixture.New(t)
	b, plain := create(t, f, limits{"a": {Hard: 10}}, cancelling), create(t, f, limits{"a": {Hard: 10}})
	if !read(t, f, b).CancelOnBreach || read(t, f, plain).CancelOnBreach {
		t.Errorf("%+v, %+v", read(t, f, b), read(t, f, plain))
	}
	got := fixture.Texts(t, f.Pool, "SELECT coalesce(policy_json ->> 'ffx_cancel_on_breach', 'none') FROM ff_budget_policy WHERE budget_id = ANY ($1) ORDER BY 1",
		[]string{b.String(), plain.String()})
	if !slices.Equal(got, []string{"none", "true"}) {
		t.Errorf("%v", got)
	}
	again, err := budget.Create(t.Context(), f.Engine, budget.Spec{ID: b, Limits: limits{"a": {Hard: 10}}})
	if err != nil || !again.Duplicate || again.Matches {
		t.Errorf("%+v, %v", again, err)
	}
	f.Exec(t, `UPDATE ff_budget_policy SET policy_json = policy_json || '{"ffx_cancel_on_breach": "yes"}' WHERE budget_id = $1`, b.String())
	if found := read(t, f, b); found.Corruption == "" {
		t.Errorf("%+v", found)
	}
}

// With a limit on running work a breach cancels no more than that, and the others wait for the reset: the example of
// docs/budgets.md. L18
func TestWithALimitABreachCancelsOnlyRunningWork(t *testing.T) {
	const atOnce = 3
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}}, cancelling)
	must(t, limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "research", Units: atOnce}))
	var all []id.ExecutionID
	for range 4 * atOnce {
		all = append(all, f.Create(t, under(b), func(s *engine.ExecutionSpec) { s.Limits = []engine.LimitKey{{Name: "research"}} }))
	}
	admit(t, f)
	running := f.ClaimN(t, atOnce)
	report(t, f.Engine, b, "", amounts{"a": 10})
	f.Flush()
	var want []id.ExecutionID
	for _, x := range running {
		want = append(want, x.ID)
	}
	wantCancelled(t, f, b, all, want...)
	admit(t, f)
	f.WantNothingClaimable(t)
	_, err := budget.Reset(t.Context(), f.Engine, b)
	must(t, err)
	admit(t, f)
	f.ClaimN(t, atOnce)
	f.WantNothingClaimable(t)
}

// A cancelled execution names the budget by its key, which people know, and by its id.
func TestACancellationNamesTheBudgetsKey(t *testing.T) {
	f := fixture.NewCloned(t)
	created, err := budget.Create(t.Context(), f.Engine, budget.Spec{
		Key: "ada, July", Limits: map[string]budget.Limit{"a": {Hard: 10}}, CancelOnBreach: true,
	})
	must(t, err)
	x := started(t, f, created.ID)
	report(t, f.Engine, created.ID, "", amounts{"a": 10})
	f.Flush()
	wantCancelled(t, f, created.ID, []id.ExecutionID{x.ID}, x.ID)
	s, err := f.DescribeExecution(t.Context(), x.ID)
	must(t, err)
	if want := fmt.Sprintf("the budget %q (%s) has no room", "ada, July", created.ID); s.CancellationReason != want {
		t.Errorf("got %q, want %q", s.CancellationReason, want)
	}
}
