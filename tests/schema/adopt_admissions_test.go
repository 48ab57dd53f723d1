package schema_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/schema"
)

// admissions writes admissions as FlowFabric does.
type admissions struct {
	conn  *pgx.Conn
	nowMs int64
}

// policy inserts a quota policy.
func (a admissions) policy(t *testing.T, windowSeconds, rate, concurrent int) id.QuotaPolicyID {
	t.Helper()
	q := id.NewQuotaPolicyID()
	exec(t, a.conn, "INSERT INTO ff_quota_policy VALUES ($1, $2, $3, $4, $5, 9, 1, 1)",
		id.Partitions{}.QuotaPartition(q), q.String(), windowSeconds, rate, concurrent)
	return q
}

// execution inserts an execution. It names a quota policy unless that is zero.
func (a admissions) execution(t *testing.T, phase, ownership, eligibility, public string, named id.QuotaPolicyID) id.ExecutionID {
	t.Helper()
	x := id.NewExecutionID("admissions", id.Partitions{})
	raw := "{}"
	if !named.IsZero() {
		raw = fmt.Sprintf(`{"quota_policy_id":%q}`, named)
	}
	exec(t, a.conn, `
		INSERT INTO ff_exec_core (
			partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
			created_at_ms, started_at_ms, terminal_at_ms, raw_fields
		)
		VALUES ($1, $2, 'admissions', $3::text, $4, $5, $6, CASE $3::text
			WHEN 'runnable' THEN 'pending_first_attempt' WHEN 'suspended' THEN 'attempt_interrupted' WHEN 'terminal' THEN 'attempt_terminal'
			ELSE 'running_attempt'
		END, 1, 1, CASE WHEN $3::text = 'terminal' THEN 1 END, $7::jsonb)`,
		x.Partition(), x.UUID(), phase, ownership, eligibility, public, raw)
	return x
}

// admit inserts the rows of CheckAdmission.
func (a admissions) admit(t *testing.T, q id.QuotaPolicyID, x string, ago time.Duration, dimensions ...string) {
	t.Helper()
	key, at := id.Partitions{}.QuotaPartition(q), a.nowMs-ago.Milliseconds()
	for _, d := range append(dimensions, "") {
		exec(t, a.conn, "INSERT INTO ff_quota_window VALUES ($1, $2, $3, $4, $5)", key, q.String(), d, at, x)
	}
	exec(t, a.conn, `
		INSERT INTO ff_quota_admitted VALUES ($1, $2, $3, $4::bigint, $4::bigint + 60000)
		ON CONFLICT (partition_key, quota_policy_id, execution_id) DO UPDATE SET admitted_at_ms = excluded.admitted_at_ms`,
		key, q.String(), x, at)
}

// FlowFabric's admissions go on counting: starts until their window is over, and places while their execution may run. The
// rest is gone, with its tables empty.
func TestAdoptKeepsAdmissions(t *testing.T) {
	t.Parallel()
	databaseURL := referenceDatabase(t, partitioned)
	conn := connect(t, databaseURL)
	a := admissions{conn, time.Now().UnixMilli()}
	none := id.QuotaPolicyID{}
	cap3, rate3, unlimited := a.policy(t, 0, 0, 3), a.policy(t, 3600, 3, 0), a.policy(t, 0, 0, 0)
	running := a.execution(t, "active", "leased", "not_applicable", "active", none)
	named := a.execution(t, "active", "leased", "not_applicable", "active", cap3)
	waiting := a.execution(t, "runnable", "unowned", "eligible_now", "waiting", none)
	ended := a.execution(t, "terminal", "unowned", "not_applicable", "completed", none)
	suspended := a.execution(t, "suspended", "released", "not_applicable", "suspended", none)
	gone := id.NewExecutionID("admissions", id.Partitions{})
	for _, q := range []id.QuotaPolicyID{cap3, unlimited, id.NewQuotaPolicyID()} {
		for _, x := range []id.ExecutionID{running, named, ended, suspended, gone} {
			a.admit(t, q, x.String(), time.Hour)
		}
		a.admit(t, q, "odd", 0)
	}
	a.admit(t, rate3, waiting.String(), 2*time.Hour)
	a.admit(t, rate3, waiting.String(), 50*time.Minute)
	a.admit(t, rate3, gone.String(), 40*time.Minute, "tenant")
	adopt(t, databaseURL)

	byte0 := func(q id.QuotaPolicyID) string { return fmt.Sprint(q[0]) }
	use := func(q id.QuotaPolicyID, x id.ExecutionID, ago time.Duration, units int, held string) string {
		return fmt.Sprint(byte0(q), " ", q, " ", x, " ", a.nowMs-ago.Milliseconds(), " ", units, " ", held)
	}
	stored := map[string][]string{
		`SELECT concat_ws(' ', partition_key, gate_id, '{fp:' || execution_partition_key || '}:' || execution_id, started_at_ms, units, held)
		FROM ffx_gate_use WHERE by_caller AND started_at_ms = admitted_at_ms`: {
			use(cap3, running, time.Hour, 1, "t"), use(cap3, named, time.Hour, 1, "t"),
			use(rate3, waiting, 50*time.Minute, 1, "t"), use(rate3, gone, 40*time.Minute, 2, "f"),
		},
		"SELECT concat_ws(' ', partition_key, gate_id, limit_name, held, started) FROM ffx_gate": {
			fmt.Sprint(byte0(cap3), " ", cap3, " 2 2"), fmt.Sprint(byte0(rate3), " ", rate3, " 1 3"),
		},
		`SELECT concat_ws(' ', quota_policy_id, requests_per_window_seconds, max_requests_per_window, active_concurrency_cap, active_concurrency)
		FROM ff_quota_policy`: {fmt.Sprint(cap3, " 0 0 3 0"), fmt.Sprint(rate3, " 3600 3 0 0")},
		"SELECT quota_policy_id FROM ff_quota_window UNION ALL SELECT quota_policy_id FROM ff_quota_admitted": nil,
	}
	wantStored := func(when string) {
		t.Helper()
		for sql, want := range stored {
			got := lines(t, conn, sql)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s:\n\t%q, want\n\t%q", when, sql, got, want)
			}
		}
	}
	wantStored("after the conversion")
	if again, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{}); err != nil || len(again.Tables) != 0 {
		t.Errorf("a second call: %+v, %v", again, err)
	}
	wantStored("after a second call")

	eng, err := engine.New(lazyPool(t, databaseURL), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []struct {
		name string
		q    id.QuotaPolicyID
		x    id.ExecutionID
		want interop.AdmissionOutcome
	}{
		{"one that has a place", cap3, running, interop.AlreadyAdmitted},
		{"one that was admitted in the window", rate3, waiting, interop.AlreadyAdmitted},
		{"a fourth start", rate3, running, interop.RateExceeded},
		{"a third place", cap3, waiting, interop.Admitted},
		{"a fourth place", cap3, suspended, interop.ConcurrencyExceeded},
	} {
		if got, err := interop.CheckAdmission(t.Context(), eng, ask.q, ask.x, interop.AdmissionSpec{}); err != nil || got.Outcome != ask.want {
			t.Errorf("%s: %+v, %v, want %s", ask.name, got, err, ask.want)
		}
	}
}
