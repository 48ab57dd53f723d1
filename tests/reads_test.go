package tests

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

func (f *fixture) describe(t *testing.T, x id.ExecutionID) *engine.ExecutionSnapshot {
	t.Helper()
	snapshot, err := f.DescribeExecution(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	if snapshot == nil {
		t.Fatalf("%s is not there", x)
	}
	return snapshot
}

func TestReads_of_a_missing_execution(t *testing.T) {
	f := newFixture(t)
	x := id.NewExecutionID(f.lane, id.Partitions{})
	ctx := t.Context()
	t.Run("describe_execution_missing_returns_none", func(t *testing.T) {
		if got, err := f.DescribeExecution(ctx, x); got != nil || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("read_execution_state_missing_returns_none", func(t *testing.T) {
		if got, err := f.ExecutionState(ctx, x); got != "" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("get_execution_result_missing_returns_none", func(t *testing.T) {
		if got, err := f.ExecutionResult(ctx, x); got != nil || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("flow, namespace and tag", func(t *testing.T) {
		if got, err := f.ExecutionFlow(ctx, x); got != nil || err != nil {
			t.Errorf("flow %v, %v", got, err)
		}
		if got, err := f.ExecutionNamespace(ctx, x); got != "" || err != nil {
			t.Errorf("namespace %q, %v", got, err)
		}
		if got, set, err := f.ExecutionTag(ctx, x, "app.tenant"); got != "" || set || err != nil {
			t.Errorf("tag %q, %t, %v", got, set, err)
		}
	})
	t.Run("what a caller needs is not found", func(t *testing.T) {
		_, input := f.ExecutionInput(ctx, x)
		_, index := f.AttemptIndex(ctx, x)
		for _, err := range []error{input, index, f.SetExecutionTag(ctx, x, "app.tenant", "v")} {
			missing, ok := errors.AsType[*engine.NotFoundError](err)
			if !errors.Is(err, engine.ErrNotFound) || !ok || missing.Entity != "execution" || missing.ID != x.String() {
				t.Errorf("got %v, want execution %s not found", err, x)
			}
		}
	})
}

func TestDescribeExecution_of_a_claimed_one(t *testing.T) {
	f := newFixture(t)
	x := f.create(t, func(spec *engine.ExecutionSpec) {
		spec.Priority, spec.Tags, spec.Payload = 5, map[string]string{"app.b": "2", "app.a": "1"}, []byte("in")
		spec.Deadline = start.Add(time.Hour)
	})
	f.advance(time.Second)
	c := f.claim(t)
	got := f.describe(t, x)
	want := engine.ExecutionSnapshot{
		ID: x, Lane: f.lane, Namespace: "default", Kind: "test", Priority: 5,
		Tags: map[string]string{"app.a": "1", "app.b": "2"}, RequiredCapabilities: id.Capabilities{},
		State: state.Vector{
			Phase: state.Active, Ownership: state.Leased, Eligibility: state.NotApplicable, Attempt: state.RunningAttempt,
			Blocking: state.NotBlocked, Outcome: state.OutcomeNone, Public: state.PublicActive,
		},
		CreatedAt: start, StartedAt: start.Add(time.Second), LastMutationAt: start.Add(time.Second), Deadline: start.Add(time.Hour),
		Attempt: &engine.AttemptSnapshot{ID: c.AttemptID},
		Lease: &engine.LeaseSnapshot{
			ID: c.ID, Epoch: 1, Instance: id.WorkerInstanceID(f.name), ExpiresAt: start.Add(time.Second + leaseTTL),
		},
		Attempts: 1,
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got\n%+v, want\n%+v", *got, want)
	}
	input, err := f.ExecutionInput(t.Context(), x)
	if err != nil || input.Kind != "test" || string(input.Payload) != "in" || !maps.Equal(input.Tags, want.Tags) {
		t.Errorf("input %+v, %v", input, err)
	}
	if index, err := f.AttemptIndex(t.Context(), x); err != nil || index != 0 {
		t.Errorf("attempt index %d, %v; want 0", index, err)
	}
}

func TestExecutionInput_without_payload(t *testing.T) {
	f := newFixture(t)
	input, err := f.ExecutionInput(t.Context(), f.seed(t, columns{"raw_fields": `{}`}))
	if err != nil || input.Payload == nil || len(input.Payload) != 0 || input.Kind != "" || len(input.Tags) != 0 {
		t.Errorf("input %#v, %v; want an empty payload, no kind, no tags", input, err)
	}
}

func TestExecutionResult(t *testing.T) {
	f := newFixture(t)
	result := func(x id.ExecutionID) []byte {
		got, err := f.ExecutionResult(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, given := range [][]byte{nil, {}, []byte("out")} {
		c := f.start(t)
		if got := result(c.Execution); got != nil {
			t.Errorf("get_execution_result_active_returns_none: got %q", got)
		}
		if err := f.CompleteExecution(t.Context(), c.Lease, given); err != nil {
			t.Fatal(err)
		}
		if got := result(c.Execution); !reflect.DeepEqual(got, given) {
			t.Errorf("get_execution_result_terminal_returns_payload: got %#v, want %#v", got, given)
		}
	}
}

// vector renders a state as the rows of [TestReads_of_rows_in_other_spellings] write it.
func vector(v state.Vector) string {
	return fmt.Sprint(v.Phase, " ", v.Ownership, " ", v.Eligibility, " ", v.Attempt, " ", v.Blocking, " ", v.Outcome, " ", v.Public)
}

// attempt is a seeded attempt: its outcome, "" for NULL.
type seeded struct {
	execution columns
	attempts  []columns
	want      string // phase, ownership, eligibility, attempt, blocking, outcome, public
}

// referenceRows are executions as the reference, or a defect of it, leaves them.
func referenceRows() map[string]seeded {
	merge := func(parts ...columns) columns {
		row := columns{}
		for _, part := range parts {
			maps.Copy(row, part)
		}
		return row
	}
	terminal := columns{
		"lifecycle_phase": "terminal", "ownership_state": "unowned", "eligibility_state": "not_applicable",
		"attempt_state": "attempt_terminal", "terminal_at_ms": start.UnixMilli(),
	}
	running := columns{"public_state": "running"}
	ended := func(outcome string) []columns {
		return []columns{{"outcome": outcome, "terminal_at_ms": start.UnixMilli()}}
	}
	return map[string]seeded{
		"read_execution_info_fresh_create_literals": {nil, nil,
			"submitted unowned eligible_now pending_first_attempt none none waiting"},
		"read_execution_info_cancelled_row": {columns{
			"lifecycle_phase": "cancelled", "eligibility_state": "cancelled", "public_state": "cancelled", "attempt_state": "cancelled",
		}, nil, "terminal unowned not_applicable attempt_terminal none cancelled cancelled"},
		"read_execution_info_pending_claim_eligibility": {columns{"lifecycle_phase": "runnable", "eligibility_state": "pending_claim"}, nil,
			"runnable unowned eligible_now pending_first_attempt none none waiting"},
		"read_execution_info_terminal_derives_outcome": {merge(terminal, columns{"public_state": "completed"}), ended("success"),
			"terminal unowned not_applicable attempt_terminal none success completed"},
		"read_execution_state_returns_public_state": {claimedByReference, []columns{{}},
			"active leased not_applicable running_attempt none none active"},
		"held for dependencies": {columns{
			"lifecycle_phase": "blocked", "eligibility_state": "blocked_by_dependencies", "blocking_reason": "waiting_for_children",
			"public_state": "waiting_children",
		}, nil, "runnable unowned blocked_by_dependencies pending_first_attempt waiting_for_children none waiting_children"},
		"other names of the first attempt": {columns{"lifecycle_phase": "eligible", "attempt_state": "initial", "blocking_reason": ""}, nil,
			"runnable unowned eligible_now pending_first_attempt none none waiting"},
		"claimed by a grant": {merge(claimedByReference, columns{"public_state": "active", "attempt_index": 1}), []columns{{}},
			"active leased not_applicable running_attempt none none active"},
		"public state claimed": {merge(claimedByReference, columns{"public_state": "claimed", "attempt_state": "running"}), []columns{{}},
			"active leased not_applicable running_attempt none none active"},
		"completed, public state left behind": {merge(terminal, running), ended("success"),
			"terminal unowned not_applicable attempt_terminal none success completed"},
		"failed, public state left behind": {merge(terminal, running), ended("failed"),
			"terminal unowned not_applicable attempt_terminal none failed failed"},
		"failed by the typed form": {merge(terminal, running), ended("failure"),
			"terminal unowned not_applicable attempt_terminal none failed failed"},
		"attempt timed out": {merge(terminal, running, columns{"raw_fields": `{"last_failure_message":"attempt_timeout"}`}), ended("interrupted"),
			"terminal unowned not_applicable attempt_terminal none expired expired"},
		"reclaimed too often": {merge(terminal, columns{"public_state": "failed", "attempt_state": "terminal_failed"}), nil,
			"terminal unowned not_applicable attempt_terminal none failed failed"},
		"cancelled by a handle": {merge(terminal, columns{"public_state": "cancelled", "ownership_state": "leased"}), []columns{{}},
			"terminal leased not_applicable attempt_terminal none cancelled cancelled"},
		"skipped": {merge(terminal, columns{"public_state": "skipped"}), nil,
			"terminal unowned not_applicable attempt_terminal none skipped skipped"},
		"ended without a trace": {merge(terminal, running), nil,
			"terminal unowned not_applicable attempt_terminal none none failed"},
		"an earlier attempt's outcome does not leak": {merge(claimedByReference, columns{"attempt_index": 1}),
			[]columns{{"outcome": "failed"}, {}}, "active leased not_applicable running_attempt none none active"},
		"delayed, public state left behind": {merge(running, columns{
			"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "attempt_state": "attempt_interrupted",
		}), []columns{{"outcome": "interrupted"}},
			"runnable unowned not_eligible_until_time attempt_interrupted none none delayed"},
		"lease expired, public state left behind": {merge(running, columns{
			"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted",
		}), nil, "runnable unowned eligible_now attempt_interrupted none none waiting"},
		"suspended": {columns{
			"lifecycle_phase": "suspended", "ownership_state": "released", "eligibility_state": "not_applicable", "public_state": "suspended",
			"attempt_state": "attempt_interrupted", "blocking_reason": "waiting_for_signal",
		}, nil, "suspended unowned not_applicable attempt_interrupted waiting_for_signal none suspended"},
		"resumable": {columns{
			"lifecycle_phase": "runnable", "ownership_state": "released", "public_state": "resumable", "attempt_state": "attempt_interrupted",
		}, nil, "runnable unowned eligible_now attempt_interrupted none none resumable"},
		"resumable, claimed since": {merge(claimedByReference, columns{"public_state": "resumable"}), []columns{{}},
			"active leased not_applicable running_attempt none none active"},
		"expired lease not yet swept": {merge(claimedByReference, columns{"ownership_state": "lease_expired_reclaimable"}), []columns{{}},
			"active lease_expired_reclaimable not_applicable running_attempt none none active"},
	}
}

func TestReads_of_rows_in_other_spellings(t *testing.T) {
	f := newFixture(t)
	for name, row := range referenceRows() {
		t.Run(name, func(t *testing.T) {
			x := f.seed(t, row.execution)
			for i, attempt := range row.attempts {
				f.seedAttempt(t, x, int32(i), attempt)
			}
			snapshot := f.describe(t, x)
			if got := vector(snapshot.State); got != row.want {
				t.Errorf("read as\n\t%s, want\n\t%s", got, row.want)
			}
			public, err := f.ExecutionState(t.Context(), x)
			if err != nil || public != snapshot.State.Public {
				t.Errorf("public state %q, %v; want %q", public, err, snapshot.State.Public)
			}
		})
	}
}

// The reference writes no public state when an execution completes, fails, is delayed or expires.
func TestE22_M2_public_state_is_written_and_repaired(t *testing.T) {
	f := newFixture(t)
	c := f.start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.wantState(t, c.Execution, stateCompleted)
	f.setExecution(t, c.Execution, "public_state = 'running'")
	if got := f.describe(t, c.Execution).State.Public; got != state.PublicCompleted {
		t.Errorf("public state %s, want %s", got, state.PublicCompleted)
	}
}

// The reference's reader does not know the outcomes that its fail and its scans write.
func TestM3_outcomes_of_the_reference_are_read(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"failed by the typed form", "attempt timed out"} {
		row := referenceRows()[name]
		x := f.seed(t, row.execution)
		f.seedAttempt(t, x, 0, row.attempts[0])
		if got := vector(f.describe(t, x).State); got != row.want {
			t.Errorf("%s: read as %s, want %s", name, got, row.want)
		}
	}
}

func TestE23_M11_unknown_spellings_of_the_reference_are_read(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"reclaimed too often", "other names of the first attempt", "public state claimed"} {
		row := referenceRows()[name]
		if got := vector(f.describe(t, f.seed(t, row.execution)).State); got != row.want {
			t.Errorf("%s: read as %s, want %s", name, got, row.want)
		}
	}
}

// The reference's describe fails for every running execution and every member of a flow.
func TestE24_M10_running_members_are_described(t *testing.T) {
	f := newFixture(t)
	flow := id.NewFlowID()
	row := maps.Clone(claimedByReference)
	row["flow_id"], row["raw_fields"] = flow, `{"current_attempt_id":"`+id.NewAttemptID().String()+`"}`
	x := f.seed(t, row)
	f.seedAttempt(t, x, 0, nil)
	got := f.describe(t, x)
	if got.Flow == nil || *got.Flow != flow {
		t.Errorf("read_execution_info_flow_id_returns_bare_uuid: flow %v, want %s", got.Flow, flow)
	}
	if got.State.Public != state.PublicActive || got.Attempt == nil || got.Attempt.Index != 0 || !got.LastMutationAt.Equal(start) {
		t.Errorf("got %+v", got)
	}
	if owner, err := f.ExecutionFlow(t.Context(), x); err != nil || owner == nil || *owner != flow {
		t.Errorf("flow %v, %v; want %s", owner, err, flow)
	}
}

// The reference takes a row with a worker instance for a leased one; it never removes the instance.
func TestE27_released_lease_is_not_shown(t *testing.T) {
	f := newFixture(t)
	c := f.start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if instance := f.attempts(t, c.Execution)[0].WorkerInstanceID; instance == nil {
		t.Error("the worker instance of a completed attempt is kept as history")
	}
	if lease := f.describe(t, c.Execution).Lease; lease != nil {
		t.Errorf("lease %+v, want none", lease)
	}
}

func TestDescribeExecution_of_older_rows(t *testing.T) {
	f := newFixture(t)
	ms := func(after time.Duration) int64 { return start.Add(after).UnixMilli() }
	t.Run("read_execution_info_lateral_joins_both_attempts", func(t *testing.T) {
		row := maps.Clone(claimedByReference)
		row["attempt_index"] = 1
		x := f.seed(t, row)
		f.seedAttempt(t, x, 0, columns{"outcome": "failed", "started_at_ms": ms(time.Second)})
		f.seedAttempt(t, x, 1, columns{"started_at_ms": ms(time.Minute)})
		got := f.describe(t, x)
		if !got.StartedAt.Equal(start.Add(time.Second)) || got.State.Outcome != state.OutcomeNone || got.Attempt.Index != 1 || got.Attempts != 2 {
			t.Errorf("started %v, outcome %s, attempt %+v of %d", got.StartedAt, got.State.Outcome, got.Attempt, got.Attempts)
		}
	})
	t.Run("counters that are no numbers", func(t *testing.T) {
		x := f.seed(t, columns{"raw_fields": `{"total_attempt_count":"many","retry_count":"","last_mutation_at":"","tags":[]}`})
		got := f.describe(t, x)
		if got.Attempts != 0 || got.Retries != 0 || !got.LastMutationAt.Equal(start) || got.Tags != nil {
			t.Errorf("attempts %d, retries %d, last mutation %v, tags %v", got.Attempts, got.Retries, got.LastMutationAt, got.Tags)
		}
	})
	t.Run("counters as text and as numbers", func(t *testing.T) {
		x := f.seed(t, columns{"raw_fields": `{"total_attempt_count":"2","retry_count":1,"tags":{"app.a":"1","app.n":7}}`})
		got := f.describe(t, x)
		if got.Attempts != 2 || got.Retries != 1 || !maps.Equal(got.Tags, map[string]string{"app.a": "1"}) {
			t.Errorf("attempts %d, retries %d, tags %v", got.Attempts, got.Retries, got.Tags)
		}
	})
	t.Run("fields that are no object", func(t *testing.T) {
		got := f.describe(t, f.seed(t, columns{"raw_fields": `[1]`}))
		if got.Namespace != "" || got.Kind != "" || got.Tags != nil {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("the newer of column and key", func(t *testing.T) {
		x := f.create(t)
		f.setExecution(t, x, fmt.Sprintf(`raw_fields = raw_fields || '{"last_mutation_at":"%d","retry_count":"3"}'`, ms(time.Hour)))
		if got := f.describe(t, x); !got.LastMutationAt.Equal(start.Add(time.Hour)) || got.Retries != 3 {
			t.Errorf("last mutation %v, retries %d", got.LastMutationAt, got.Retries)
		}
		f.setExecution(t, x, fmt.Sprintf("ffx_last_mutation_at_ms = %d, ffx_retry_count = 4", ms(2*time.Hour)))
		if got := f.describe(t, x); !got.LastMutationAt.Equal(start.Add(2*time.Hour)) || got.Retries != 4 {
			t.Errorf("last mutation %v, retries %d", got.LastMutationAt, got.Retries)
		}
	})
	t.Run("a lease of the reference", func(t *testing.T) {
		lease, attempt := id.NewLeaseID(), id.NewAttemptID()
		x := f.seed(t, claimedByReference)
		f.seedAttempt(t, x, 0, columns{
			"lease_epoch": 3, "lease_expires_at_ms": ms(time.Minute), "ffx_lease_id": id.NewLeaseID(), "ffx_attempt_id": id.NewAttemptID(),
			"raw_fields": fmt.Sprintf(`{"lease_id":%q,"attempt_id":%q}`, lease, attempt),
		})
		got := f.describe(t, x)
		want := engine.LeaseSnapshot{ID: lease, Epoch: 3, Instance: "reference-1", ExpiresAt: start.Add(time.Minute)}
		if got.Lease == nil || *got.Lease != want || got.Attempt.ID != attempt {
			t.Errorf("lease %+v of attempt %+v, want %+v of %s", got.Lease, got.Attempt, want, attempt)
		}
	})
	t.Run("what a suspended one waits for", func(t *testing.T) {
		waitpoint, stale := id.NewWaitpointID(), id.NewWaitpointID()
		x := f.seed(t, columns{
			"lifecycle_phase": "suspended", "public_state": "suspended", "raw_fields": fmt.Sprintf(`{"current_waitpoint_id":%q}`, stale),
		})
		if got := f.describe(t, x).Waitpoint; got == nil || *got != stale {
			t.Errorf("waitpoint %v, want %s", got, stale)
		}
		f.insert(t, "ff_suspension_current", columns{
			"partition_key": x.Partition(), "execution_id": x.UUID(), "suspension_id": id.NewSuspensionID(), "suspended_at_ms": ms(0),
			"condition": `{}`, "ffx_primary_waitpoint_id": waitpoint,
		}, nil)
		if got := f.describe(t, x).Waitpoint; got == nil || *got != waitpoint {
			t.Errorf("waitpoint %v, want %s", got, waitpoint)
		}
	})
	t.Run("ids that are none", func(t *testing.T) {
		x := f.seed(t, columns{"raw_fields": `{"current_waitpoint_id":"nonsense"}`})
		if _, err := f.DescribeExecution(t.Context(), x); !errors.Is(err, engine.ErrCorruption) {
			t.Errorf("got %v, want corruption", err)
		}
	})
}

// One column holds wake-up and deadline in the reference's rows.
func TestDescribeExecution_tells_wake_up_from_deadline(t *testing.T) {
	f := newFixture(t)
	ms := func(after time.Duration) int64 { return start.Add(after).UnixMilli() }
	delayed := func(changed columns) columns {
		row := columns{"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed"}
		maps.Copy(row, changed)
		return row
	}
	for _, c := range []struct {
		name            string
		row             columns
		delay, deadline time.Duration // after start; 0: none
	}{
		{"ours", delayed(columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": ms(time.Hour)}),
			time.Minute, time.Hour},
		{"ours, due before it wakes", delayed(columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Hour), "ffx_execution_deadline_ms": ms(time.Minute)}),
			time.Hour, time.Minute},
		{"ours, without a deadline", delayed(columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": 0}),
			time.Minute, 0},
		{"ours once, delayed by the reference since", delayed(columns{"deadline_at_ms": ms(2 * time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": ms(time.Hour)}),
			2 * time.Minute, time.Hour},
		{"delayed by the reference", delayed(columns{"deadline_at_ms": ms(time.Minute)}), time.Minute, 0},
		{"retry of the reference", delayed(columns{"deadline_at_ms": ms(time.Hour), "blocking_reason": "waiting_for_retry_backoff",
			"raw_fields": fmt.Sprintf(`{"delay_until":%d}`, ms(time.Minute))}), time.Minute, time.Hour},
		{"not delayed, ours", columns{"deadline_at_ms": ms(time.Minute), "ffx_execution_deadline_ms": ms(time.Hour)}, 0, time.Hour},
		{"not delayed, ours, without a deadline", columns{"deadline_at_ms": ms(time.Minute), "ffx_execution_deadline_ms": 0}, 0, 0},
		{"not delayed, the reference's", columns{"deadline_at_ms": ms(time.Hour)}, 0, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := f.describe(t, f.seed(t, c.row))
			for name, pair := range map[string][2]time.Time{"wake-up": {got.DelayUntil, after(c.delay)}, "deadline": {got.Deadline, after(c.deadline)}} {
				if !pair[0].Equal(pair[1]) {
					t.Errorf("%s %v, want %v", name, pair[0], pair[1])
				}
			}
		})
	}
}

func after(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return start.Add(d)
}

func TestSetExecutionTag(t *testing.T) {
	f := newFixture(t)
	x := f.create(t, func(spec *engine.ExecutionSpec) { spec.Tags = map[string]string{"app.kept": "1"} })
	f.advance(time.Second)
	if err := f.SetExecutionTag(t.Context(), x, "app.set", "2"); err != nil {
		t.Fatal(err)
	}
	if err := f.SetExecutionTag(t.Context(), x, "app.set", "3"); err != nil {
		t.Fatal(err)
	}
	got := f.describe(t, x)
	if want := map[string]string{"app.kept": "1", "app.set": "3"}; !maps.Equal(got.Tags, want) || !got.LastMutationAt.Equal(f.now()) {
		t.Errorf("tags %v at %v, want %v", got.Tags, got.LastMutationAt, want)
	}
	if value, set, err := f.ExecutionTag(t.Context(), x, "app.set"); value != "3" || !set || err != nil {
		t.Errorf("tag %q, %t, %v", value, set, err)
	}
	if value, set, err := f.ExecutionTag(t.Context(), x, "app.other"); value != "" || set || err != nil {
		t.Errorf("tag that is not set: %q, %t, %v", value, set, err)
	}
	f.wantState(t, x, stateReady)
}

// The reference reports a tag as set that it could not write.
func TestE35_tag_is_set_where_there_are_no_tags(t *testing.T) {
	f := newFixture(t)
	for _, fields := range []string{`{}`, `{"tags":null}`, `{"tags":["a"]}`, `{"tags":"a"}`, `[]`} {
		x := f.seed(t, columns{"raw_fields": fields})
		if err := f.SetExecutionTag(t.Context(), x, "app.set", "v"); err != nil {
			t.Errorf("%s: %v", fields, err)
		}
		if value, set, err := f.ExecutionTag(t.Context(), x, "app.set"); value != "v" || !set || err != nil {
			t.Errorf("%s: tag %q, %t, %v", fields, value, set, err)
		}
	}
}

func TestListExecutions(t *testing.T) {
	f := cloneFixture(t)
	var ids []id.ExecutionID
	for range 5 {
		ids = append(ids, f.create(t))
	}
	slices.SortFunc(ids, id.ExecutionID.Compare)
	partition := ids[0].Partition()
	other := id.ExecutionIDFromRow(partition+1, ids[0].UUID())
	f.create(t, func(spec *engine.ExecutionSpec) { spec.ID = other })

	list := func(after id.ExecutionID, limit int) engine.Page[id.ExecutionID] {
		page, err := f.ListExecutions(t.Context(), partition, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	for _, c := range []struct {
		name  string
		after id.ExecutionID
		limit int
		want  engine.Page[id.ExecutionID]
	}{
		{"from the start", id.ExecutionID{}, 2, engine.Page[id.ExecutionID]{Items: ids[:2], More: true}},
		{"strictly after the cursor", ids[1], 2, engine.Page[id.ExecutionID]{Items: ids[2:4], More: true}},
		{"the last page", ids[2], 2, engine.Page[id.ExecutionID]{Items: ids[3:]}},
		{"beyond the end", ids[4], 2, engine.Page[id.ExecutionID]{Items: []id.ExecutionID{}}},
		{"more than there are", id.ExecutionID{}, 1 << 40, engine.Page[id.ExecutionID]{Items: ids}},
		{"none", id.ExecutionID{}, 0, engine.Page[id.ExecutionID]{}},
		{"after the greatest id", id.ExecutionIDFromRow(partition, id.ExecutionUUID(slices.Repeat([]byte{255}, 16))), 2,
			engine.Page[id.ExecutionID]{}},
	} {
		if got := list(c.after, c.limit); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	var walked []id.ExecutionID
	for x, err := range f.Executions(t.Context(), partition) {
		if err != nil {
			t.Fatal(err)
		}
		walked = append(walked, x)
	}
	if !slices.Equal(walked, ids) {
		t.Errorf("walked through %v, want %v", walked, ids)
	}
	for range f.Executions(t.Context(), partition) {
		break // nothing is held open
	}
}

func TestListExecutions_page_is_bounded(t *testing.T) {
	f := cloneFixture(t)
	f.exec(t, `INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state,
		public_state, attempt_state, created_at_ms)
		SELECT 7, gen_random_uuid(), 'bulk', 'terminal', 'unowned', 'not_applicable', 'completed', 'attempt_terminal', 0
		FROM generate_series(1, $1::integer)`, engine.MaxPage+1)
	page, err := f.ListExecutions(t.Context(), 7, id.ExecutionID{}, engine.MaxPage+1)
	if err != nil || len(page.Items) != engine.MaxPage || !page.More {
		t.Errorf("%d items, more %t, %v; want %d and more", len(page.Items), page.More, err, engine.MaxPage)
	}
	count := 0
	for range f.Executions(t.Context(), 7) {
		count++
	}
	if count != engine.MaxPage+1 {
		t.Errorf("walked through %d, want %d", count, engine.MaxPage+1)
	}
}

func TestListLanes(t *testing.T) {
	f := cloneFixture(t)
	// Byte order, whatever the database's collation.
	lanes := []id.LaneID{"B", "Z", "_", "a", "b"}
	for _, lane := range []id.LaneID{"b", "_", "Z", "a", "B"} {
		f.create(t, func(spec *engine.ExecutionSpec) { spec.Lane = lane })
	}
	for _, c := range []struct {
		after id.LaneID
		limit int
		want  engine.Page[id.LaneID]
	}{
		{"", 2, engine.Page[id.LaneID]{Items: lanes[:2], More: true}},
		{"Z", 2, engine.Page[id.LaneID]{Items: lanes[2:4], More: true}},
		{"a", 2, engine.Page[id.LaneID]{Items: lanes[4:]}},
		{"", 5, engine.Page[id.LaneID]{Items: lanes}},
		{"", 0, engine.Page[id.LaneID]{}},
	} {
		got, err := f.ListLanes(t.Context(), c.after, c.limit)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("after %q, limit %d: %+v, %v; want %+v", c.after, c.limit, got, err, c.want)
		}
	}
	rows := all[struct {
		LaneID         string
		RegisteredAtMs int64
		RegisteredBy   string
	}](t, f.pool, "SELECT * FROM ff_lane_registry WHERE lane_id = 'a'")
	if len(rows) != 1 || rows[0].RegisteredAtMs != start.UnixMilli() || rows[0].RegisteredBy != "create_execution" {
		t.Errorf("stored %+v", rows)
	}
	f.exec(t, "INSERT INTO ff_lane_registry VALUES ($1, 0, 'reference')", strings.Repeat("x", 65))
	if _, err := f.ListLanes(t.Context(), "b", 10); !errors.Is(err, engine.ErrCorruption) || !strings.Contains(err.Error(), "ff_lane_registry.lane_id") {
		t.Errorf("got %v, want corruption of ff_lane_registry.lane_id", err)
	}
}
