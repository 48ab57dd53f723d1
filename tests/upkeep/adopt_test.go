package upkeep

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// adoptedRow has the columns that an adoption writes besides the state.
type adoptedRow struct {
	deadline, column, wakeUp int64 // ffx_execution_deadline_ms, deadline_at_ms, ffx_delay_until_ms; 0 for NULL
}

func adoptedRowOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID) adoptedRow {
	t.Helper()
	s := f.Stored(t, x)
	value := func(ms *int64) int64 { return *cmp.Or(ms, new(int64)) }
	return adoptedRow{value(s.LastDeadline), value(s.DeadlineAtMs), value(s.DelayUntilMs)}
}

const hourMs = int64(3_600_000)

// A waiting execution in any spelling of FlowFabric is converted to this library's, once, and worked to the end.
func TestAdoptForeignRows(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	soon := fixture.Start.UnixMilli() + hourMs
	for _, c := range []struct {
		name  string
		row   fixture.Columns
		state string
		want  adoptedRow
	}{
		{name: "E1 as it is created", state: fixture.StateReady},
		{name: "phase pending", row: fixture.Columns{"lifecycle_phase": "pending"}, state: fixture.StateReady},
		{name: "phase eligible", row: fixture.Columns{"lifecycle_phase": "eligible"}, state: fixture.StateReady},
		{name: "phase blocked outside of a flow", row: fixture.Columns{"lifecycle_phase": "blocked", "eligibility_state": "blocked_by_dependencies"}, state: fixture.StateReady},
		{name: "released", row: fixture.Columns{"ownership_state": "released"}, state: fixture.StateReady},
		{name: "runnable, attempt pending", row: fixture.Columns{"lifecycle_phase": "runnable"}, state: fixture.StateReady},
		{name: "attempt pending_claim", row: fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_claim"}, state: fixture.StateReady},
		{name: "attempt initial", row: fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "initial"}, state: fixture.StateReady},
		{name: "attempt none", row: fixture.Columns{"attempt_state": "none"}, state: fixture.StateReady},
		{
			name: "canonical", state: fixture.StateReady,
			row: fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt", "blocking_reason": "waiting_for_worker"},
		},
		{name: "stale public state", row: fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "public_state": "running"}, state: fixture.StateReturned},
		{
			name: "E2 a deadline of the policy", row: fixture.Columns{"policy": `{"timeout_policy":{"execution_deadline_ms":3600000}}`},
			state: fixture.StateReady, want: adoptedRow{deadline: soon, column: soon},
		},
		{name: "a deadline", row: fixture.Columns{"deadline_at_ms": soon}, state: fixture.StateReady, want: adoptedRow{deadline: soon, column: soon}},
		{
			name: "E2 a delay of the policy", row: fixture.Columns{"policy": fmt.Sprintf(`{"delay_until":%d}`, soon)},
			state: fixture.StateDelayed, want: adoptedRow{column: soon, wakeUp: soon},
		},
		{name: "a delay that has passed", row: fixture.Columns{"policy": `{"delay_until":5}`}, state: fixture.StateReady},
		{
			name: "a policy that nobody can read", row: fixture.Columns{"policy": `{"delay_until":"x","timeout_policy":7,"budget_ids":3,"routing_requirements":[]}`},
			state: fixture.StateReady,
		},
		{
			name: "E17 delayed by the reference",
			row: fixture.Columns{
				"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "running",
				"attempt_state": "attempt_interrupted", "deadline_at_ms": soon,
			},
			state: "runnable unowned not_eligible_until_time delayed attempt_interrupted waiting_for_delay",
			want:  adoptedRow{column: soon, wakeUp: soon},
		},
		{
			name: "E18 a retry of the reference",
			row: fixture.Columns{
				"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed",
				"attempt_state": "pending_retry_attempt", "blocking_reason": "waiting_for_retry_backoff", "deadline_at_ms": soon + 7,
				"raw_fields": fmt.Sprintf(`{"execution_kind":"test","delay_until":"%d","retry_count":"2"}`, soon),
			},
			state: fixture.StateBackoff, want: adoptedRow{deadline: soon + 7, column: soon, wakeUp: soon},
		},
	} {
		x := f.Seed(t, c.row)
		if n := f.AdoptAll(t); n != 1 {
			t.Errorf("%s: adopted %d", c.name, n)
		}
		if n := f.AdoptAll(t); n != 0 {
			t.Errorf("%s: adopted %d again", c.name, n)
		}
		f.WantState(t, x, c.state)
		if got := adoptedRowOf(t, f, x); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		f.Clock.Add(2 * hourMs)
		f.Once(t, f.Maintenance().PromoteDelayed)
		if c.want.deadline == 0 {
			if got := f.ClaimOne(t); got.ID != x {
				t.Errorf("%s: claimed %s, want %s", c.name, got.ID, x)
			} else if err := f.CompleteExecution(t.Context(), got.Lease, nil); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			f.WantState(t, x, fixture.StateCompleted)
		} else {
			f.Once(t, f.Maintenance().ExpireDeadlines)
			f.WantEvents(t, x, "completion expired")
		}
		f.Clock.Store(fixture.Start.UnixMilli())
	}
}

// Executions that have a lease or a grant, are suspended or have ended get their columns, and are not moved.
func TestAdoptLeavesOtherPhasesAlone(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	for _, row := range []fixture.Columns{
		fixture.ClaimedByReference,
		{"lifecycle_phase": "suspended", "eligibility_state": "not_applicable", "public_state": "suspended", "attempt_state": "attempt_interrupted"},
		{"eligibility_state": "pending_claim"},
		{"lifecycle_phase": "terminal", "eligibility_state": "not_applicable", "public_state": "completed", "attempt_state": "attempt_terminal", "terminal_at_ms": fixture.Start.UnixMilli(), "deadline_at_ms": int64(9)},
		{"lifecycle_phase": "cancelled", "eligibility_state": "cancelled", "public_state": "cancelled", "attempt_state": "cancelled", "terminal_at_ms": fixture.Start.UnixMilli()},
	} {
		x := f.Seed(t, row)
		before := f.Stored(t, x).State
		if n := f.AdoptAll(t); n != 1 {
			t.Errorf("%s: adopted %d", before, n)
		}
		f.WantState(t, x, before)
		if n := f.AdoptAll(t); n != 0 {
			t.Errorf("%s: adopted again", before)
		}
		if row["terminal_at_ms"] != nil && row["deadline_at_ms"] != nil {
			if got := adoptedRowOf(t, f, x); got != (adoptedRow{deadline: -9, column: 9}) {
				t.Errorf("%s: %+v, want the deadline of one that has ended", before, got)
			}
		}
	}
}

// Requirements that the reference keeps only in the policy count: every claimer has them.
func TestAdoptReadsCapabilitiesFromThePolicy_I5(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	capable := f.Seed(t, fixture.Columns{"policy": `{"routing_requirements":{"required_capabilities":["gpu","","avx","gpu"]}}`})
	stored := f.Seed(t, fixture.Columns{"required_capabilities": []string{"", "arm"}, "policy": `{"routing_requirements":{"required_capabilities":["gpu"]}}`})
	if n := f.AdoptAll(t); n != 2 {
		t.Errorf("adopted %d of 2", n)
	}
	if got := f.Stored(t, capable).Capabilities; !slices.Equal(got, []string{"avx", "gpu"}) {
		t.Errorf("capabilities %q of the policy", got)
	}
	if got := f.Stored(t, stored).Capabilities; !slices.Equal(got, []string{"arm"}) {
		t.Errorf("capabilities %q that were stored", got)
	}
	if n := len(f.ClaimN(t, 10)); n != 0 {
		t.Errorf("who has none of them claims %d", n)
	}
}

// Budgets and quotas are found in both of their places, and hold the execution.
func TestAdoptReadsAttachments_I4(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	a, b, quota := id.NewBudgetID(), id.NewBudgetID(), id.NewQuotaPolicyID()
	first, second := min(a.String(), b.String()), max(a.String(), b.String())
	budgeted := f.Seed(t, fixture.Columns{
		"policy":     fmt.Sprintf(`{"budget_ids":[%q]}`, second),
		"raw_fields": fmt.Sprintf(`{"execution_kind":"test","budget_ids":" %s,,%s "}`, first, second),
	})
	limited := f.Seed(t, fixture.Columns{"raw_fields": fmt.Sprintf(`{"execution_kind":"test","quota_policy_id":%q}`, quota)})
	wrong := f.Seed(t, fixture.Columns{"policy": `{"budget_ids":["tea"]}`})
	freed := f.Seed(t, fixture.Columns{
		"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "blocking_reason": "waiting_for_worker",
		"raw_fields": fmt.Sprintf(`{"execution_kind":"test","quota_policy_id":%q}`, quota),
	})
	if n := f.AdoptAll(t); n != 4 {
		t.Errorf("adopted %d of 4", n)
	}
	if n := len(f.ClaimN(t, 10)); n != 0 {
		t.Errorf("claimed %d that the gate has not admitted", n)
	}
	const blocked = "runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget"
	f.WantState(t, budgeted, blocked)
	if got := fixture.Texts(t, f.Pool, "SELECT array_to_string(ffx_budget_ids, ' ') || ' at ' || ffx_gate_id FROM ff_exec_core WHERE execution_id = $1", budgeted.UUID()); got[0] != first+" "+second+" at "+first {
		t.Errorf("budgets %s, want %s %s", got, first, second)
	}
	f.WantState(t, limited, "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota")
	if got := fixture.Texts(t, f.Pool, "SELECT ffx_quota_policy_id || ' in ' || ffx_quota_partition FROM ff_exec_core WHERE execution_id = $1", limited.UUID()); got[0] != fmt.Sprintf("%s in %d", quota, id.Partitions{}.QuotaPartition(quota)) {
		t.Errorf("quota %s", got)
	}
	f.WantState(t, wrong, blocked)
	if got := f.Stored(t, wrong).Raw(t, "blocking_detail"); got != "not an id: tea" {
		t.Errorf("blocked because of %q", got)
	}
	f.WantState(t, freed, "runnable unowned blocked_by_quota rate_limited attempt_interrupted waiting_for_quota")
}

// An execution that may yet join a flow waits half a minute, one in its lane's partition does not.
func TestAdoptWaitsForPossibleMembers(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	alone := f.Seed(t, nil)
	elsewhere := f.Seed(t, fixture.Columns{"partition_key": (alone.Partition() + 1) % 256})
	elsewhere = id.ExecutionIDFromRow((alone.Partition()+1)%256, elsewhere.UUID())
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d at once", n)
	}
	f.WantState(t, alone, fixture.StateReady)
	f.Advance(30*time.Second - time.Millisecond)
	if n := f.AdoptAll(t); n != 0 {
		t.Errorf("adopted %d too early", n)
	}
	f.Advance(time.Millisecond)
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d after half a minute", n)
	}
	f.WantState(t, elsewhere, fixture.StateReady)
}

// Rows and flows that others hold are passed over, and more than a batch of young ones hides nothing.
func TestAdoptNeverWaits(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	locked, free := f.Seed(t, nil), f.Seed(t, nil)
	locker := f.BeginTx(t)
	if _, err := locker.Exec(t.Context(), "SELECT FROM ff_exec_core WHERE execution_id = $1 FOR UPDATE", locked.UUID()); err != nil {
		t.Fatal(err)
	}
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d beside a locked one", n)
	}
	f.WantState(t, free, fixture.StateReady)
	if err := locker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d when the lock was gone", n)
	}
}

func TestAdoptInATransaction(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	x := f.Seed(t, nil)
	before := f.Dump(t, x)
	for _, commit := range []bool{false, true} {
		tx := f.BeginTx(t)
		n, err := f.WithTx(tx).Maintenance().Adopt(t.Context(), 10)
		if err != nil || n != 1 {
			t.Fatalf("adopted %d: %v", n, err)
		}
		if !commit {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if f.Dump(t, x) != before {
				t.Error("rolled back, and changed")
			}
			continue
		}
		_, err = f.WithTx(tx).Maintenance().Adopt(t.Context(), 0)
		fixture.WantInputError(t, err, "batch")
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.WantState(t, x, fixture.StateReady)
}

// A conversion adopts the existing executions, and this job those that FlowFabric creates afterwards.
func TestAdoptInAConvertedDatabase(t *testing.T) {
	f := fixture.ReferenceFixture(t)
	before := f.Seed(t, fixture.Columns{"policy": `{"timeout_policy":{"execution_deadline_ms":3600000}}`})
	f.Adopt(t)
	f.Share(t)
	after := f.Seed(t, nil)
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d, want the one created after the conversion", n)
	}
	claimed := f.ClaimN(t, 10)
	if len(claimed) != 2 {
		t.Fatalf("claimed %d of 2", len(claimed))
	}
	for _, c := range claimed {
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Error(err)
		}
	}
	for _, x := range []id.ExecutionID{before, after} {
		f.WantState(t, x, fixture.StateCompleted)
	}
	takeJobs(t, f, f.Engine, "holder")
}

// A process with background work adopts executions of another program as soon as they are committed.
func TestAdoptOnNotification_E1(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	woken := make(chan struct{}, 8)
	ctx := t.Context()
	go func() {
		_ = f.Maintenance().ListenForeign(ctx, func() { woken <- struct{}{} })
	}()
	<-woken // it listens
	f.Create(t)
	if _, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Lane: f.Lane, Kind: "test"}}, 200)); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, "SELECT pg_notify('ffx_foreign', '')")
	<-woken // by that, and by nothing before
	if n := len(woken); n != 0 {
		t.Errorf("told %d times of what this library creates", n)
	}
	f.Seed(t, nil)
	<-woken
}
