package tests

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func (f *fixture) adoptAll(t *testing.T) int {
	t.Helper()
	return f.once(t, f.Maintenance().Adopt)
}

// once calls a job, and returns on how many it acted.
func (f *fixture) once(t *testing.T, act job) int {
	t.Helper()
	n, err := act(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// adoptedRow is what an adoption writes besides the state.
type adoptedRow struct {
	deadline, column, wakeUp int64 // ffx_execution_deadline_ms, deadline_at_ms, ffx_delay_until_ms; 0 for NULL
}

func (f *fixture) adoptedRow(t *testing.T, x id.ExecutionID) adoptedRow {
	t.Helper()
	s := f.stored(t, x)
	value := func(ms *int64) int64 { return *cmp.Or(ms, new(int64)) }
	return adoptedRow{value(s.LastDeadline), value(s.DeadlineAtMs), value(s.DelayUntilMs)}
}

const hourMs = int64(3_600_000)

// What FlowFabric stores of an execution that waits, in every spelling, is brought into this library's, once, and
// worked to the end.
func TestAdopt_rows_of_another_program(t *testing.T) {
	f := cloneFixture(t)
	soon := start.UnixMilli() + hourMs
	for _, c := range []struct {
		name  string
		row   columns
		state string
		want  adoptedRow
	}{
		{name: "E1 as it is created", state: stateReady},
		{name: "phase pending", row: columns{"lifecycle_phase": "pending"}, state: stateReady},
		{name: "phase eligible", row: columns{"lifecycle_phase": "eligible"}, state: stateReady},
		{name: "phase blocked outside of a flow", row: columns{"lifecycle_phase": "blocked", "eligibility_state": "blocked_by_dependencies"}, state: stateReady},
		{name: "released", row: columns{"ownership_state": "released"}, state: stateReady},
		{name: "runnable, attempt pending", row: columns{"lifecycle_phase": "runnable"}, state: stateReady},
		{name: "attempt pending_claim", row: columns{"lifecycle_phase": "runnable", "attempt_state": "pending_claim"}, state: stateReady},
		{name: "attempt initial", row: columns{"lifecycle_phase": "runnable", "attempt_state": "initial"}, state: stateReady},
		{name: "attempt none", row: columns{"attempt_state": "none"}, state: stateReady},
		{
			name: "canonical", state: stateReady,
			row: columns{"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt", "blocking_reason": "waiting_for_worker"},
		},
		{name: "stale public state", row: columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "public_state": "running"}, state: stateReturned},
		{
			name: "E2 a deadline of the policy", row: columns{"policy": `{"timeout_policy":{"execution_deadline_ms":3600000}}`},
			state: stateReady, want: adoptedRow{deadline: soon, column: soon},
		},
		{name: "a deadline", row: columns{"deadline_at_ms": soon}, state: stateReady, want: adoptedRow{deadline: soon, column: soon}},
		{
			name: "E2 a delay of the policy", row: columns{"policy": fmt.Sprintf(`{"delay_until":%d}`, soon)},
			state: stateDelayed, want: adoptedRow{column: soon, wakeUp: soon},
		},
		{name: "a delay that has passed", row: columns{"policy": `{"delay_until":5}`}, state: stateReady},
		{
			name: "a policy that nobody can read", row: columns{"policy": `{"delay_until":"x","timeout_policy":7,"budget_ids":3,"routing_requirements":[]}`},
			state: stateReady,
		},
		{
			name: "E17 delayed by the reference",
			row: columns{
				"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "running",
				"attempt_state": "attempt_interrupted", "deadline_at_ms": soon,
			},
			state: "runnable unowned not_eligible_until_time delayed attempt_interrupted waiting_for_delay",
			want:  adoptedRow{column: soon, wakeUp: soon},
		},
		{
			name: "E18 a retry of the reference",
			row: columns{
				"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed",
				"attempt_state": "pending_retry_attempt", "blocking_reason": "waiting_for_retry_backoff", "deadline_at_ms": soon + 7,
				"raw_fields": fmt.Sprintf(`{"execution_kind":"test","delay_until":"%d","retry_count":"2"}`, soon),
			},
			state: stateBackoff, want: adoptedRow{deadline: soon + 7, column: soon, wakeUp: soon},
		},
	} {
		x := f.seed(t, c.row)
		if n := f.adoptAll(t); n != 1 {
			t.Errorf("%s: adopted %d", c.name, n)
		}
		if n := f.adoptAll(t); n != 0 {
			t.Errorf("%s: adopted %d again", c.name, n)
		}
		f.wantState(t, x, c.state)
		if got := f.adoptedRow(t, x); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		f.clock.Add(2 * hourMs)
		f.once(t, f.Maintenance().PromoteDelayed)
		if c.want.deadline == 0 {
			if got := f.claim(t); got.ID != x {
				t.Errorf("%s: claimed %s, want %s", c.name, got.ID, x)
			} else if err := f.CompleteExecution(t.Context(), got.Lease, nil); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			f.wantState(t, x, stateCompleted)
		} else {
			f.once(t, f.Maintenance().ExpireDeadlines)
			f.wantEvents(t, x, "completion expired")
		}
		f.clock.Store(start.UnixMilli())
	}
}

// What somebody has a lease or a grant of, what is suspended and what has ended gets its facts, and is not moved.
func TestAdopt_leaves_what_is_not_waiting(t *testing.T) {
	f := cloneFixture(t)
	for _, row := range []columns{
		claimedByReference,
		{"lifecycle_phase": "suspended", "eligibility_state": "not_applicable", "public_state": "suspended", "attempt_state": "attempt_interrupted"},
		{"eligibility_state": "pending_claim"},
		{"lifecycle_phase": "terminal", "eligibility_state": "not_applicable", "public_state": "completed", "attempt_state": "attempt_terminal", "terminal_at_ms": start.UnixMilli(), "deadline_at_ms": int64(9)},
		{"lifecycle_phase": "cancelled", "eligibility_state": "cancelled", "public_state": "cancelled", "attempt_state": "cancelled", "terminal_at_ms": start.UnixMilli()},
	} {
		x := f.seed(t, row)
		before := f.stored(t, x).State
		if n := f.adoptAll(t); n != 1 {
			t.Errorf("%s: adopted %d", before, n)
		}
		f.wantState(t, x, before)
		if n := f.adoptAll(t); n != 0 {
			t.Errorf("%s: adopted again", before)
		}
		if row["terminal_at_ms"] != nil && row["deadline_at_ms"] != nil {
			if got := f.adoptedRow(t, x); got != (adoptedRow{deadline: -9, column: 9}) {
				t.Errorf("%s: %+v, want the deadline of one that has ended", before, got)
			}
		}
	}
}

// What the reference keeps in the policy alone counts: whoever claims has what it requires.
func TestI5_adopt_capabilities_of_the_policy(t *testing.T) {
	f := cloneFixture(t)
	capable := f.seed(t, columns{"policy": `{"routing_requirements":{"required_capabilities":["gpu","","avx","gpu"]}}`})
	stored := f.seed(t, columns{"required_capabilities": []string{"", "arm"}, "policy": `{"routing_requirements":{"required_capabilities":["gpu"]}}`})
	if n := f.adoptAll(t); n != 2 {
		t.Errorf("adopted %d of 2", n)
	}
	if got := f.stored(t, capable).Capabilities; !slices.Equal(got, []string{"avx", "gpu"}) {
		t.Errorf("capabilities %q of the policy", got)
	}
	if got := f.stored(t, stored).Capabilities; !slices.Equal(got, []string{"arm"}) {
		t.Errorf("capabilities %q that were stored", got)
	}
	if n := len(f.claimN(t, 10)); n != 0 {
		t.Errorf("who has none of them claims %d", n)
	}
}

// Budgets and quotas are found in both of their places, and hold the execution.
func TestI4_adopt_attachments(t *testing.T) {
	f := cloneFixture(t)
	a, b, quota := id.NewBudgetID(), id.NewBudgetID(), id.NewQuotaPolicyID()
	first, second := min(a.String(), b.String()), max(a.String(), b.String())
	budgeted := f.seed(t, columns{
		"policy":     fmt.Sprintf(`{"budget_ids":[%q]}`, second),
		"raw_fields": fmt.Sprintf(`{"execution_kind":"test","budget_ids":" %s,,%s "}`, first, second),
	})
	limited := f.seed(t, columns{"raw_fields": fmt.Sprintf(`{"execution_kind":"test","quota_policy_id":%q}`, quota)})
	wrong := f.seed(t, columns{"policy": `{"budget_ids":["tea"]}`})
	freed := f.seed(t, columns{
		"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "blocking_reason": "waiting_for_worker",
		"raw_fields": fmt.Sprintf(`{"execution_kind":"test","quota_policy_id":%q}`, quota),
	})
	if n := f.adoptAll(t); n != 4 {
		t.Errorf("adopted %d of 4", n)
	}
	if n := len(f.claimN(t, 10)); n != 0 {
		t.Errorf("claimed %d that the gate has not admitted", n)
	}
	const blocked = "runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget"
	f.wantState(t, budgeted, blocked)
	if got := texts(t, f.pool, "SELECT array_to_string(ffx_budget_ids, ' ') || ' at ' || ffx_gate_id FROM ff_exec_core WHERE execution_id = $1", budgeted.UUID()); got[0] != first+" "+second+" at "+first {
		t.Errorf("budgets %s, want %s %s", got, first, second)
	}
	f.wantState(t, limited, "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota")
	if got := texts(t, f.pool, "SELECT ffx_quota_policy_id || ' in ' || ffx_quota_partition FROM ff_exec_core WHERE execution_id = $1", limited.UUID()); got[0] != fmt.Sprintf("%s in %d", quota, id.Partitions{}.QuotaPartition(quota)) {
		t.Errorf("quota %s", got)
	}
	f.wantState(t, wrong, blocked)
	if got := f.stored(t, wrong).raw(t, "blocking_detail"); got != "not an id: tea" {
		t.Errorf("blocked because of %q", got)
	}
	f.wantState(t, freed, "runnable unowned blocked_by_quota rate_limited attempt_interrupted waiting_for_quota")
}

// An execution that may yet join a flow waits half a minute, one in its lane's partition does not.
func TestAdopt_waits_for_members_to_be(t *testing.T) {
	f := cloneFixture(t)
	alone := f.seed(t, nil)
	elsewhere := f.seed(t, columns{"partition_key": (alone.Partition() + 1) % 256})
	elsewhere = id.ExecutionIDFromRow((alone.Partition()+1)%256, elsewhere.UUID())
	if n := f.adoptAll(t); n != 1 {
		t.Errorf("adopted %d at once", n)
	}
	f.wantState(t, alone, stateReady)
	f.advance(30*time.Second - time.Millisecond)
	if n := f.adoptAll(t); n != 0 {
		t.Errorf("adopted %d too early", n)
	}
	f.advance(time.Millisecond)
	if n := f.adoptAll(t); n != 1 {
		t.Errorf("adopted %d after half a minute", n)
	}
	f.wantState(t, elsewhere, stateReady)
}

// Rows and flows that others hold are passed over, and more than a batch of young ones hides nothing.
func TestAdopt_waits_for_nobody(t *testing.T) {
	f := cloneFixture(t)
	locked, free := f.seed(t, nil), f.seed(t, nil)
	locker := f.begin(t)
	if _, err := locker.Exec(t.Context(), "SELECT FROM ff_exec_core WHERE execution_id = $1 FOR UPDATE", locked.UUID()); err != nil {
		t.Fatal(err)
	}
	if n := f.adoptAll(t); n != 1 {
		t.Errorf("adopted %d beside a locked one", n)
	}
	f.wantState(t, free, stateReady)
	if err := locker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.adoptAll(t); n != 1 {
		t.Errorf("adopted %d when the lock was gone", n)
	}
}

func TestAdopt_in_a_transaction_of_the_caller(t *testing.T) {
	f := cloneFixture(t)
	x := f.seed(t, nil)
	before := f.dump(t, x)
	for _, commit := range []bool{false, true} {
		tx := f.begin(t)
		n, err := f.WithTx(tx).Maintenance().Adopt(t.Context(), 10)
		if err != nil || n != 1 {
			t.Fatalf("adopted %d: %v", n, err)
		}
		if !commit {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if f.dump(t, x) != before {
				t.Error("rolled back, and changed")
			}
			continue
		}
		_, err = f.WithTx(tx).Maintenance().Adopt(t.Context(), 0)
		wantInputError(t, err, "batch")
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.wantState(t, x, stateReady)
}

// A database that FlowFabric made has its tables in parts.
func TestAdopt_in_a_database_that_FlowFabric_made(t *testing.T) {
	f := referenceFixture(t)
	before := f.seed(t, columns{"policy": `{"timeout_policy":{"execution_deadline_ms":3600000}}`})
	f.adopt(t)
	after := f.seed(t, nil)
	if n := f.adoptAll(t); n != 2 {
		t.Errorf("adopted %d of 2", n)
	}
	claimed := f.claimN(t, 10)
	if len(claimed) != 2 {
		t.Fatalf("claimed %d of 2", len(claimed))
	}
	for _, c := range claimed {
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Error(err)
		}
	}
	for _, x := range []id.ExecutionID{before, after} {
		f.wantState(t, x, stateCompleted)
	}
	f.takeJobs(t, f.Engine, "holder")
}

// A process with background work adopts what another program creates as soon as that is committed.
func TestE1_adopt_when_told(t *testing.T) {
	f := cloneFixture(t)
	woken := make(chan struct{}, 8)
	ctx := t.Context()
	go func() {
		_ = f.Maintenance().ListenForeign(ctx, func() { woken <- struct{}{} })
	}()
	<-woken // it listens
	f.create(t)
	if _, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Lane: f.lane, Kind: "test"}}, 200)); err != nil {
		t.Fatal(err)
	}
	f.exec(t, "SELECT pg_notify('ffx_foreign', '')")
	<-woken // by that, and by nothing before
	if n := len(woken); n != 0 {
		t.Errorf("told %d times of what this library creates", n)
	}
	f.seed(t, nil)
	<-woken
}
