package executions

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestDescribeAClaimedExecution(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) {
		spec.Priority, spec.Tags, spec.Payload = 5, map[string]string{"app.b": "2", "app.a": "1"}, []byte("in")
		spec.Deadline = fixture.Start.Add(time.Hour)
	})
	f.Advance(time.Second)
	c := f.ClaimOne(t)
	got := f.Describe(t, x)
	want := engine.ExecutionSnapshot{
		ID: x, Lane: f.Lane, Namespace: "default", Kind: "test", Priority: 5,
		Tags: map[string]string{"app.a": "1", "app.b": "2"}, RequiredCapabilities: id.Capabilities{},
		State: state.Vector{
			Phase: state.Active, Ownership: state.Leased, Eligibility: state.NotApplicable, Attempt: state.RunningAttempt,
			Blocking: state.NotBlocked, Outcome: state.OutcomeNone, Public: state.PublicActive,
		},
		CreatedAt: fixture.Start, StartedAt: fixture.Start.Add(time.Second), LastMutationAt: fixture.Start.Add(time.Second), Deadline: fixture.Start.Add(time.Hour),
		Attempt: &engine.AttemptSnapshot{ID: c.Lease.AttemptID},
		Lease: &engine.LeaseSnapshot{
			ID: c.Lease.ID, Epoch: 1, Instance: id.WorkerInstanceID(f.Name), ExpiresAt: fixture.Start.Add(time.Second + fixture.LeaseTTL),
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

// vector renders a state as the rows of [TestReadsOfRowsInOtherSpellings] write it.
func vector(v state.Vector) string {
	return fmt.Sprint(v.Phase, " ", v.Ownership, " ", v.Eligibility, " ", v.Attempt, " ", v.Blocking, " ", cmp.Or(v.Outcome, "none"), " ", v.Public)
}

func TestReadsOfRowsInOtherSpellings(t *testing.T) {
	f := fixture.New(t)
	for name, row := range fixture.ReferenceRows() {
		t.Run(name, func(t *testing.T) {
			x := f.Seed(t, row.Execution)
			for i, attempt := range row.Attempts {
				f.SeedAttempt(t, x, int32(i), attempt)
			}
			snapshot := f.Describe(t, x)
			if got := vector(snapshot.State); got != row.Want {
				t.Errorf("read as\n\t%s, want\n\t%s", got, row.Want)
			}
			public, err := f.ExecutionState(t.Context(), x)
			if err != nil || public != snapshot.State.Public {
				t.Errorf("public state %q, %v; want %q", public, err, snapshot.State.Public)
			}
		})
	}
}

// The reference writes no public state when an execution completes, fails, is delayed or expires.
func TestPublicStateIsWrittenAndRepaired_E22_M2(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, c.ID, fixture.StateCompleted)
	f.SetExecution(t, c.ID, "public_state = 'running'")
	if got := f.Describe(t, c.ID).State.Public; got != state.PublicCompleted {
		t.Errorf("public state %s, want %s", got, state.PublicCompleted)
	}
}

// The reference's reader does not know the outcomes that its fail and its scans write.
func TestOutcomesOfTheReferenceAreRead_M3(t *testing.T) {
	f := fixture.New(t)
	for _, name := range []string{"failed by the typed form", "attempt timed out"} {
		row := fixture.ReferenceRows()[name]
		x := f.Seed(t, row.Execution)
		f.SeedAttempt(t, x, 0, row.Attempts[0])
		if got := vector(f.Describe(t, x).State); got != row.Want {
			t.Errorf("%s: read as %s, want %s", name, got, row.Want)
		}
	}
}

func TestUnknownSpellingsOfTheReferenceAreRead_E23_M11(t *testing.T) {
	f := fixture.New(t)
	for _, name := range []string{"reclaimed too often", "other names of the first attempt", "public state claimed"} {
		row := fixture.ReferenceRows()[name]
		if got := vector(f.Describe(t, f.Seed(t, row.Execution)).State); got != row.Want {
			t.Errorf("%s: read as %s, want %s", name, got, row.Want)
		}
	}
}

// The reference's describe fails for every running execution and every member of a flow.
func TestRunningMembersAreDescribed_E24_M10(t *testing.T) {
	f := fixture.New(t)
	flow := id.NewFlowID()
	row := maps.Clone(fixture.ClaimedByReference)
	row["flow_id"], row["raw_fields"] = flow, `{"current_attempt_id":"`+id.NewAttemptID().String()+`"}`
	x := f.Seed(t, row)
	f.SeedAttempt(t, x, 0, nil)
	got := f.Describe(t, x)
	if got.Flow == nil || *got.Flow != flow {
		t.Errorf("read_execution_info_flow_id_returns_bare_uuid: flow %v, want %s", got.Flow, flow)
	}
	if got.State.Public != state.PublicActive || got.Attempt == nil || got.Attempt.Index != 0 || !got.LastMutationAt.Equal(fixture.Start) {
		t.Errorf("got %+v", got)
	}
}

// The reference takes a row with a worker instance for a leased one; it never removes the instance.
func TestReleasedLeaseIsNotShown_E27(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if instance := f.StoredAttempts(t, c.ID)[0].WorkerInstanceID; instance == nil {
		t.Error("the worker instance of a completed attempt is kept as history")
	}
	if lease := f.Describe(t, c.ID).Lease; lease != nil {
		t.Errorf("lease %+v, want none", lease)
	}
}

func TestDescribeOlderRows(t *testing.T) {
	f := fixture.New(t)
	ms := func(after time.Duration) int64 { return fixture.Start.Add(after).UnixMilli() }
	t.Run("read_execution_info_lateral_joins_both_attempts", func(t *testing.T) {
		row := maps.Clone(fixture.ClaimedByReference)
		row["attempt_index"] = 1
		x := f.Seed(t, row)
		f.SeedAttempt(t, x, 0, fixture.Columns{"outcome": "failed", "started_at_ms": ms(time.Second)})
		f.SeedAttempt(t, x, 1, fixture.Columns{"started_at_ms": ms(time.Minute)})
		got := f.Describe(t, x)
		if !got.StartedAt.Equal(fixture.Start.Add(time.Second)) || got.State.Outcome != state.OutcomeNone || got.Attempt.Index != 1 || got.Attempts != 2 {
			t.Errorf("started %v, outcome %s, attempt %+v of %d", got.StartedAt, got.State.Outcome, got.Attempt, got.Attempts)
		}
	})
	t.Run("counters that are no numbers", func(t *testing.T) {
		x := f.Seed(t, fixture.Columns{"raw_fields": `{"total_attempt_count":"many","retry_count":"","last_mutation_at":"","tags":[]}`})
		got := f.Describe(t, x)
		if got.Attempts != 0 || got.Retries != 0 || !got.LastMutationAt.Equal(fixture.Start) || got.Tags != nil {
			t.Errorf("attempts %d, retries %d, last mutation %v, tags %v", got.Attempts, got.Retries, got.LastMutationAt, got.Tags)
		}
	})
	t.Run("counters as text and as numbers", func(t *testing.T) {
		x := f.Seed(t, fixture.Columns{"raw_fields": `{"total_attempt_count":"2","retry_count":1,"tags":{"app.a":"1","app.n":7}}`})
		got := f.Describe(t, x)
		if got.Attempts != 2 || got.Retries != 1 || !maps.Equal(got.Tags, map[string]string{"app.a": "1"}) {
			t.Errorf("attempts %d, retries %d, tags %v", got.Attempts, got.Retries, got.Tags)
		}
	})
	t.Run("fields that are no object", func(t *testing.T) {
		got := f.Describe(t, f.Seed(t, fixture.Columns{"raw_fields": `[1]`}))
		if got.Namespace != "" || got.Kind != "" || got.Tags != nil {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("the newer of column and key", func(t *testing.T) {
		x := f.Create(t)
		f.SetExecution(t, x, fmt.Sprintf(`raw_fields = raw_fields || '{"last_mutation_at":"%d","retry_count":"3"}'`, ms(time.Hour)))
		if got := f.Describe(t, x); !got.LastMutationAt.Equal(fixture.Start.Add(time.Hour)) || got.Retries != 3 {
			t.Errorf("last mutation %v, retries %d", got.LastMutationAt, got.Retries)
		}
		f.SetExecution(t, x, fmt.Sprintf("ffx_last_mutation_at_ms = %d, ffx_retry_count = 4", ms(2*time.Hour)))
		if got := f.Describe(t, x); !got.LastMutationAt.Equal(fixture.Start.Add(2*time.Hour)) || got.Retries != 4 {
			t.Errorf("last mutation %v, retries %d", got.LastMutationAt, got.Retries)
		}
	})
	t.Run("a lease of the reference", func(t *testing.T) {
		lease, attempt := id.NewLeaseID(), id.NewAttemptID()
		x := f.Seed(t, fixture.ClaimedByReference)
		f.SeedAttempt(t, x, 0, fixture.Columns{
			"lease_epoch": 3, "lease_expires_at_ms": ms(time.Minute), "ffx_lease_id": id.NewLeaseID(), "ffx_attempt_id": id.NewAttemptID(),
			"raw_fields": fmt.Sprintf(`{"lease_id":%q,"attempt_id":%q}`, lease, attempt),
		})
		got := f.Describe(t, x)
		want := engine.LeaseSnapshot{ID: lease, Epoch: 3, Instance: "reference-1", ExpiresAt: fixture.Start.Add(time.Minute)}
		if got.Lease == nil || *got.Lease != want || got.Attempt.ID != attempt {
			t.Errorf("lease %+v of attempt %+v, want %+v of %s", got.Lease, got.Attempt, want, attempt)
		}
	})
	t.Run("what a suspended one waits for", func(t *testing.T) {
		waitpoint, stale := id.NewWaitpointID(), id.NewWaitpointID()
		x := f.Seed(t, fixture.Columns{
			"lifecycle_phase": "suspended", "public_state": "suspended", "raw_fields": fmt.Sprintf(`{"current_waitpoint_id":%q}`, stale),
		})
		if got := f.Describe(t, x).Waitpoint; got == nil || *got != stale {
			t.Errorf("waitpoint %v, want %s", got, stale)
		}
		f.Insert(t, "ff_suspension_current", fixture.Columns{
			"partition_key": x.Partition(), "execution_id": x.UUID(), "suspension_id": id.NewSuspensionID(), "suspended_at_ms": ms(0),
			"condition": `{}`, "ffx_primary_waitpoint_id": waitpoint,
		}, nil)
		if got := f.Describe(t, x).Waitpoint; got == nil || *got != waitpoint {
			t.Errorf("waitpoint %v, want %s", got, waitpoint)
		}
	})
	t.Run("ids that are none", func(t *testing.T) {
		x := f.Seed(t, fixture.Columns{"raw_fields": `{"current_waitpoint_id":"nonsense"}`})
		if _, err := f.DescribeExecution(t.Context(), x); !errors.Is(err, fferr.ErrCorruption) {
			t.Errorf("got %v, want corruption", err)
		}
	})
}

// The reference ends executions and leaves their waiting fields in the row.
func TestEndedExecutionWaitsForNothing(t *testing.T) {
	f := fixture.New(t)
	for _, phase := range []string{"terminal", "cancelled"} {
		for _, reason := range []string{"waiting_for_budget", "waiting_for_children", "paused_by_operator", "waiting_for_worker"} {
			x := f.Seed(t, fixture.Columns{
				"lifecycle_phase": phase, "public_state": "cancelled", "blocking_reason": reason,
				"raw_fields": `{"blocking_detail":"budget 7 is used up"}`,
			})
			if got := f.Describe(t, x); got.State.Blocking != state.NotBlocked || got.BlockingDetail != "" {
				t.Errorf("%s and %s: described as blocked by %s, %q", phase, reason, got.State.Blocking, got.BlockingDetail)
			}
		}
	}
	x := f.Seed(t, fixture.Columns{"blocking_reason": "waiting_for_budget", "raw_fields": `{"blocking_detail":"budget 7 is used up"}`})
	if got := f.Describe(t, x); got.State.Blocking != state.WaitingForBudget || got.BlockingDetail == "" {
		t.Errorf("one that waits is described as blocked by %s, %q", got.State.Blocking, got.BlockingDetail)
	}
	// An unknown literal is still corruption.
	_, err := f.DescribeExecution(t.Context(), f.Seed(t, fixture.Columns{"lifecycle_phase": "terminal", "blocking_reason": "who knows"}))
	fixture.WantCorruption(t, err, "ff_exec_core.blocking_reason")
}

// One column holds wake-up and deadline in the reference's rows.
func TestDescribeSeparatesWakeUpFromDeadline(t *testing.T) {
	f := fixture.New(t)
	ms := func(after time.Duration) int64 { return fixture.Start.Add(after).UnixMilli() }
	delayed := func(changed fixture.Columns) fixture.Columns {
		row := fixture.Columns{"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed"}
		maps.Copy(row, changed)
		return row
	}
	for _, c := range []struct {
		name            string
		row             fixture.Columns
		delay, deadline time.Duration // after start; 0: none
	}{
		{
			"ours", delayed(fixture.Columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": ms(time.Hour)}),
			time.Minute, time.Hour,
		},
		{
			"ours, due before it wakes", delayed(fixture.Columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Hour), "ffx_execution_deadline_ms": ms(time.Minute)}),
			time.Hour, time.Minute,
		},
		{
			"ours, without a deadline", delayed(fixture.Columns{"deadline_at_ms": ms(time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": 0}),
			time.Minute, 0,
		},
		{
			"ours once, delayed by the reference since", delayed(fixture.Columns{"deadline_at_ms": ms(2 * time.Minute), "ffx_delay_until_ms": ms(time.Minute), "ffx_execution_deadline_ms": ms(time.Hour)}),
			2 * time.Minute, time.Hour,
		},
		{"delayed by the reference", delayed(fixture.Columns{"deadline_at_ms": ms(time.Minute)}), time.Minute, 0},
		{"retry of the reference", delayed(fixture.Columns{
			"deadline_at_ms": ms(time.Hour), "blocking_reason": "waiting_for_retry_backoff",
			"raw_fields": fmt.Sprintf(`{"delay_until":%d}`, ms(time.Minute)),
		}), time.Minute, time.Hour},
		{"not delayed, ours", fixture.Columns{"deadline_at_ms": ms(time.Minute), "ffx_execution_deadline_ms": ms(time.Hour)}, 0, time.Hour},
		{"not delayed, ours, without a deadline", fixture.Columns{"deadline_at_ms": ms(time.Minute), "ffx_execution_deadline_ms": 0}, 0, 0},
		{"not delayed, the reference's", fixture.Columns{"deadline_at_ms": ms(time.Hour)}, 0, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := f.Describe(t, f.Seed(t, c.row))
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
	return fixture.Start.Add(d)
}
