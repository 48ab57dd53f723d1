package tests

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
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
		Attempt: &engine.AttemptSnapshot{ID: c.Lease.AttemptID},
		Lease: &engine.LeaseSnapshot{
			ID: c.Lease.ID, Epoch: 1, Instance: id.WorkerInstanceID(f.name), ExpiresAt: start.Add(time.Second + leaseTTL),
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
}

// vector renders a state as the rows of [TestReads_of_rows_in_other_spellings] write it.
func vector(v state.Vector) string {
	return fmt.Sprint(v.Phase, " ", v.Ownership, " ", v.Eligibility, " ", v.Attempt, " ", v.Blocking, " ", v.Outcome, " ", v.Public)
}

// seeded is an execution with its attempts, by index, and how it has to be read.
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
		"read_execution_info_fresh_create_literals": {
			nil, nil,
			"submitted unowned eligible_now pending_first_attempt none none waiting",
		},
		"read_execution_info_cancelled_row": {columns{
			"lifecycle_phase": "cancelled", "eligibility_state": "cancelled", "public_state": "cancelled", "attempt_state": "cancelled",
		}, nil, "terminal unowned not_applicable attempt_terminal none cancelled cancelled"},
		"read_execution_info_pending_claim_eligibility": {
			columns{"lifecycle_phase": "runnable", "eligibility_state": "pending_claim"},
			nil,
			"runnable unowned eligible_now pending_first_attempt none none waiting",
		},
		"read_execution_info_terminal_derives_outcome": {
			merge(terminal, columns{"public_state": "completed"}), ended("success"),
			"terminal unowned not_applicable attempt_terminal none success completed",
		},
		"read_execution_state_returns_public_state": {
			claimedByReference,
			[]columns{{}},
			"active leased not_applicable running_attempt none none active",
		},
		"held for dependencies": {columns{
			"lifecycle_phase": "blocked", "eligibility_state": "blocked_by_dependencies", "blocking_reason": "waiting_for_children",
			"public_state": "waiting_children",
		}, nil, "runnable unowned blocked_by_dependencies pending_first_attempt waiting_for_children none waiting_children"},
		"other names of the first attempt": {
			columns{"lifecycle_phase": "eligible", "attempt_state": "initial", "blocking_reason": ""},
			nil,
			"runnable unowned eligible_now pending_first_attempt none none waiting",
		},
		"claimed by a grant": {
			merge(claimedByReference, columns{"public_state": "active", "attempt_index": 1}),
			[]columns{{}},
			"active leased not_applicable running_attempt none none active",
		},
		"public state claimed": {
			merge(claimedByReference, columns{"public_state": "claimed", "attempt_state": "running"}),
			[]columns{{}},
			"active leased not_applicable running_attempt none none active",
		},
		"completed, public state left behind": {
			merge(terminal, running), ended("success"),
			"terminal unowned not_applicable attempt_terminal none success completed",
		},
		"failed, public state left behind": {
			merge(terminal, running), ended("failed"),
			"terminal unowned not_applicable attempt_terminal none failed failed",
		},
		"failed by the typed form": {
			merge(terminal, running), ended("failure"),
			"terminal unowned not_applicable attempt_terminal none failed failed",
		},
		"attempt timed out": {
			merge(terminal, running, columns{"raw_fields": `{"last_failure_message":"attempt_timeout"}`}), ended("interrupted"),
			"terminal unowned not_applicable attempt_terminal none expired expired",
		},
		"reclaimed too often": {
			merge(terminal, columns{"public_state": "failed", "attempt_state": "terminal_failed"}), nil,
			"terminal unowned not_applicable attempt_terminal none failed failed",
		},
		"cancelled by a handle": {
			merge(terminal, columns{"public_state": "cancelled", "ownership_state": "leased"}),
			[]columns{{}},
			"terminal leased not_applicable attempt_terminal none cancelled cancelled",
		},
		"skipped": {
			merge(terminal, columns{"public_state": "skipped"}), nil,
			"terminal unowned not_applicable attempt_terminal none skipped skipped",
		},
		"ended without a trace": {
			merge(terminal, running), nil,
			"terminal unowned not_applicable attempt_terminal none none failed",
		},
		"an earlier attempt's outcome does not leak": {
			merge(claimedByReference, columns{"attempt_index": 1}),
			[]columns{{"outcome": "failed"}, {}},
			"active leased not_applicable running_attempt none none active",
		},
		"delayed, public state left behind": {
			merge(running, columns{
				"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "attempt_state": "attempt_interrupted",
			}),
			[]columns{{"outcome": "interrupted"}},
			"runnable unowned not_eligible_until_time attempt_interrupted none none delayed",
		},
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
		"resumable, claimed since": {
			merge(claimedByReference, columns{"public_state": "resumable"}),
			[]columns{{}},
			"active leased not_applicable running_attempt none none active",
		},
		"expired lease not yet swept": {
			merge(claimedByReference, columns{"ownership_state": "lease_expired_reclaimable"}),
			[]columns{{}},
			"active lease_expired_reclaimable not_applicable running_attempt none none active",
		},
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
	f.wantState(t, c.ID, stateCompleted)
	f.setExecution(t, c.ID, "public_state = 'running'")
	if got := f.describe(t, c.ID).State.Public; got != state.PublicCompleted {
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
}

// The reference takes a row with a worker instance for a leased one; it never removes the instance.
func TestE27_released_lease_is_not_shown(t *testing.T) {
	f := newFixture(t)
	c := f.start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if instance := f.attempts(t, c.ID)[0].WorkerInstanceID; instance == nil {
		t.Error("the worker instance of a completed attempt is kept as history")
	}
	if lease := f.describe(t, c.ID).Lease; lease != nil {
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

// The reference ends executions and leaves what they waited for in the row.
func TestA20_what_has_ended_waits_for_nothing(t *testing.T) {
	f := newFixture(t)
	for _, phase := range []string{"terminal", "cancelled"} {
		for _, reason := range []string{"waiting_for_budget", "waiting_for_children", "paused_by_operator", "waiting_for_worker"} {
			x := f.seed(t, columns{
				"lifecycle_phase": phase, "public_state": "cancelled", "blocking_reason": reason,
				"raw_fields": `{"blocking_detail":"budget 7 is used up"}`,
			})
			if got := f.describe(t, x); got.State.Blocking != state.NotBlocked || got.BlockingDetail != "" {
				t.Errorf("%s and %s: described as blocked by %s, %q", phase, reason, got.State.Blocking, got.BlockingDetail)
			}
		}
	}
	x := f.seed(t, columns{"blocking_reason": "waiting_for_budget", "raw_fields": `{"blocking_detail":"budget 7 is used up"}`})
	if got := f.describe(t, x); got.State.Blocking != state.WaitingForBudget || got.BlockingDetail == "" {
		t.Errorf("one that waits is described as blocked by %s, %q", got.State.Blocking, got.BlockingDetail)
	}
	// A literal that nobody knows is still corruption.
	_, err := f.DescribeExecution(t.Context(), f.seed(t, columns{"lifecycle_phase": "terminal", "blocking_reason": "who knows"}))
	wantCorruption(t, err, "ff_exec_core.blocking_reason")
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
		{
			"ours", delayed(columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": ms(time.Hour)}),
			time.Minute, time.Hour,
		},
		{
			"ours, due before it wakes", delayed(columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Hour), "ffx_execution_deadline_ms": ms(time.Minute)}),
			time.Hour, time.Minute,
		},
		{
			"ours, without a deadline", delayed(columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": 0}),
			time.Minute, 0,
		},
		{
			"ours once, delayed by the reference since", delayed(columns{"deadline_at_ms": ms(2 * time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": ms(time.Hour)}),
			2 * time.Minute, time.Hour,
		},
		{"delayed by the reference", delayed(columns{"deadline_at_ms": ms(time.Minute)}), time.Minute, 0},
		{"retry of the reference", delayed(columns{
			"deadline_at_ms": ms(time.Hour), "blocking_reason": "waiting_for_retry_backoff",
			"raw_fields": fmt.Sprintf(`{"delay_until":%d}`, ms(time.Minute)),
		}), time.Minute, time.Hour},
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
