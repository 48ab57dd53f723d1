package upkeep

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// adoptedRow has the columns that a conversion writes besides the state.
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

// A waiting execution in any spelling of FlowFabric is converted to this library's, and worked to the end.
func TestConvertedRowsAreWorked(t *testing.T) {
	f := fixture.ReferenceFixture(t)
	soon, later := fixture.Start.UnixMilli()+hourMs, int64(4_102_444_800_000) // a conversion asks the server's clock
	type row struct {
		name  string
		row   fixture.Columns
		state string
		want  adoptedRow
	}
	var cases []row
	var seeded []id.ExecutionID
	for _, c := range []row{
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
		{name: "stale public state", row: fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "public_state": "running"}, state: fixture.StateReady},
		{
			name: "E2 a deadline of the policy", row: fixture.Columns{"policy": `{"timeout_policy":{"execution_deadline_ms":3600000}}`},
			state: fixture.StateReady, want: adoptedRow{deadline: soon, column: soon},
		},
		{name: "a deadline", row: fixture.Columns{"deadline_at_ms": soon}, state: fixture.StateReady, want: adoptedRow{deadline: soon, column: soon}},
		{
			name: "E2 a delay of the policy", row: fixture.Columns{"policy": fmt.Sprintf(`{"delay_until":%d}`, later)},
			state: fixture.StateDelayed, want: adoptedRow{column: later, wakeUp: later},
		},
		{name: "a delay that has passed", row: fixture.Columns{"policy": `{"delay_until":5}`}, state: fixture.StateReady},
		{
			name: "an unreadable policy", row: fixture.Columns{"policy": `{"delay_until":"x","timeout_policy":7,"budget_ids":3,"routing_requirements":[]}`},
			state: fixture.StateReady,
		},
		{
			name: "E17 delayed by the reference",
			row: fixture.Columns{
				"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "running",
				"attempt_state": "attempt_interrupted", "deadline_at_ms": later,
			},
			state: "runnable unowned not_eligible_until_time delayed pending_first_attempt waiting_for_delay",
			want:  adoptedRow{column: later, wakeUp: later},
		},
		{
			name: "E18 a retry of the reference",
			row: fixture.Columns{
				"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed",
				"attempt_state": "pending_retry_attempt", "blocking_reason": "waiting_for_retry_backoff", "deadline_at_ms": later + 7,
				"raw_fields": fmt.Sprintf(`{"execution_kind":"test","delay_until":"%d","retry_count":"2"}`, later),
			},
			state: fixture.StateBackoff, want: adoptedRow{deadline: later + 7, column: later, wakeUp: later},
		},
	} {
		seeded = append(seeded, f.Seed(t, c.row))
		cases = append(cases, c)
	}
	f.Adopt(t)
	for i, c := range cases {
		x := seeded[i]
		f.WantState(t, x, c.state)
		if got := adoptedRowOf(t, f, x); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	f.Clock.Store(later + hourMs)
	f.Once(t, upkeep.Of(f.Engine).PromoteDelayed)
	f.Once(t, upkeep.Of(f.Engine).ExpireDeadlines)
	claimed := make(map[id.ExecutionID]bool)
	for _, c := range f.ClaimN(t, len(cases)) {
		claimed[c.ID] = true
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Error(err)
		}
	}
	for i, c := range cases {
		if c.want.deadline != 0 {
			f.WantEvents(t, seeded[i], "completion expired")
		} else if !claimed[seeded[i]] {
			t.Errorf("%s: was not claimed", c.name)
		}
	}
}

// Requirements that the reference keeps only in the policy count: every claimer has them.
func TestConversionReadsCapabilitiesFromThePolicy_I5(t *testing.T) {
	f := fixture.ReferenceFixture(t)
	capable := f.Seed(t, fixture.Columns{"policy": `{"routing_requirements":{"required_capabilities":["gpu","","avx","gpu"]}}`})
	stored := f.Seed(t, fixture.Columns{"required_capabilities": []string{"", "arm"}, "policy": `{"routing_requirements":{"required_capabilities":["gpu"]}}`})
	f.Adopt(t)
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
func TestConversionReadsAttachments_I4(t *testing.T) {
	f := fixture.ReferenceFixture(t)
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
	f.Adopt(t)
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
	f.WantState(t, freed, "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota")
}
