package signals

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// An execution whose pointer another program has moved ahead suspends and continues like any other.
func TestSuspendWithAPointerAhead_S17(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	f.SetExecution(t, l.Execution, "attempt_index = attempt_index + 1")
	f.SuspendAgain(t, l, ready)
	f.Signal(t, l, "ready")
	again := f.ClaimOne(t)
	if !again.Resumed || again.Lease.Attempt != 0 || f.Stored(t, l.Execution).AttemptIndex != 0 {
		t.Errorf("%+v", again)
	}
	if err := f.CompleteExecution(t.Context(), again.Lease, nil); err != nil {
		t.Error(err)
	}
}

// A resumed execution is claimed by a grant too, and only once its wait is over. However it is claimed, the same attempt
// continues.
func TestResumedExecutionIsClaimedByAGrant_S19_S22(t *testing.T) {
	f := fixture.GrantFixture(t)
	for name, claim := range map[string]func(t *testing.T, x id.ExecutionID) engine.Lease{
		"by a worker": func(t *testing.T, _ id.ExecutionID) engine.Lease { return f.ClaimOne(t).Lease },
		"by a resume grant": func(t *testing.T, x id.ExecutionID) engine.Lease {
			claimed, err := interop.ClaimFromResumeGrant(t.Context(), f.Engine, f.Resuming(f.Issue(t, x)))
			if err != nil || !claimed.Resumed {
				t.Fatalf("%+v, %v", claimed, err)
			}
			return claimed.Lease
		},
	} {
		l := f.Start(t).Lease
		first := f.StoredAttempts(t, l.Execution)[0]
		f.Advance(time.Second)
		f.SuspendAgain(t, l, ready)
		if _, err := interop.IssueClaimGrant(t.Context(), f.Engine, f.GrantSpec(l.Execution)); !errors.Is(err, fferr.ErrNotLeaseable) {
			t.Errorf("%s, while it waits: %v", name, err)
		}
		f.Signal(t, l, "ready")
		f.WantState(t, l.Execution, fixture.StateResumable)
		f.Advance(time.Second)
		again := claim(t, l.Execution)
		f.WantState(t, l.Execution, fixture.StateRunning)
		attempts := f.StoredAttempts(t, l.Execution)
		if len(attempts) != 1 || *attempts[0].AttemptID != *first.AttemptID || *attempts[0].StartedAtMs != *first.StartedAtMs ||
			again.Attempt != l.Attempt || again.AttemptID != l.AttemptID || again.Epoch != l.Epoch+2 ||
			*attempts[0].LeaseExpiresAtMs <= f.Time().UnixMilli() || attempts[0].Outcome != "" {
			t.Errorf("%s: %+v, then %+v", name, first, attempts)
		}
		if err := f.CompleteExecution(t.Context(), again, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// Everything that a suspension is given is stored, shown and applied.
func TestSuspensionIsStored_S11(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, engine.Received("approved").At(decision), func(s *engine.SuspendSpec) {
		s.ResumeDelay, s.Reason, s.Asked, s.Pointer = time.Minute, state.WaitingForApproval, "Publish?", "page 7"
		s.OnTimeout = engine.CancelOnTimeout
	})
	f.WantState(t, l.Execution, "suspended unowned not_applicable suspended attempt_interrupted waiting_for_approval")
	stored := fixture.Texts(t, f.Pool, `
		SELECT concat_ws(' ', s.ffx_resume_delay_ms, s.ffx_requested_by, s.ffx_continuation_pointer, s.ffx_asked, s.reason_code,
			w.waitpoint_key, w.state, w.required_signal_names, w.expires_at_ms = s.timeout_at_ms)
		FROM ff_suspension_current AS s JOIN ff_waitpoint_pending AS w ON w.waitpoint_id = s.ffx_primary_waitpoint_id`)
	if !slices.Equal(stored, []string{"60000 worker page 7 Publish? waiting_for_approval decision active {approved} t"}) {
		t.Errorf("%q", stored)
	}
	page, err := f.ListWaits(t.Context(), engine.WaitFilter{}, "", 0)
	if err != nil || len(page.Items) != 1 {
		t.Fatal(page, err)
	}
	wait := page.Items[0]
	if wait.Reason != state.WaitingForApproval || wait.Asked != "Publish?" || wait.OnTimeout != engine.CancelOnTimeout ||
		!slices.Equal(wait.Names, []string{"approved"}) || !wait.Until.Equal(f.Time().Add(time.Hour)) {
		t.Errorf("%+v", wait)
	}
	f.Signal(t, l, "approved")
	f.WantState(t, l.Execution, "runnable unowned not_eligible_until_time delayed attempt_interrupted waiting_for_resume_delay")
	if until := f.Stored(t, l.Execution).DelayUntilMs; until == nil || *until != f.Time().Add(time.Minute).UnixMilli() {
		t.Errorf("delayed until %v", until)
	}
}

// A resume ends nothing: its event is for subscribers that ask for such, and has the tenant of its execution. Dependents
// go on waiting.
func TestResumeIsNoEnd_S48_I17_M39(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, nil, "a>b")
	f.ClaimAll(t)
	l := f.Lease(t, flow, "a")
	before := f.Members(t, flow)["b"]
	f.SuspendAgain(t, l, ready)
	f.Signal(t, l, "ready")
	again := f.ClaimOne(t).Lease
	f.SuspendAgain(t, again, ready)
	if err := f.Engine.Resume(t.Context(), l.Execution, 0); err != nil {
		t.Fatal(err)
	}
	stored := fixture.Texts(t, f.Pool, "SELECT concat_ws(' ', outcome, flow_id, dispatched_at_ms IS NOT NULL) FROM ff_completion_event ORDER BY event_id")
	if !slices.Equal(stored, []string{"resumable t", "resumable t"}) {
		t.Errorf("%q", stored)
	}
	if _, err := upkeep.Of(f.Engine).DispatchCompletions(t.Context(), 10); err != nil {
		t.Error(err)
	}
	if got := f.Members(t, flow)["b"]; got != before {
		t.Errorf("the dependent of a resumed member is %s, was %s", got, before)
	}
	if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		filter events.Filter
		want   []state.CompletionOutcome
	}{
		{events.Filter{}, []state.CompletionOutcome{state.CompletionSuccess}},
		{events.Filter{NonTerminal: true}, []state.CompletionOutcome{state.CompletionResumable, state.CompletionResumable, state.CompletionSuccess}},
	} {
		if got := outcomes(t, f.Engine, c.filter, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.filter, got, c.want)
		}
	}
}

// outcomes returns the first n outcomes that a subscriber gets.
func outcomes(t *testing.T, eng *engine.Engine, filter events.Filter, n int) (got []state.CompletionOutcome) {
	t.Helper()
	sub, err := events.Subscribe(t.Context(), eng, events.Completions(filter), events.Options{After: events.Beginning})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for range n {
		ctx, _, stop := progress.Context(t, "the next event")
		event, err := sub.Next(ctx)
		stop()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Outcome)
	}
	return got
}

// The events of timeouts, resumes and signals have the namespace and the instance tag of their execution.
func TestEventsOfWaitsCarryTheirTenant_S54(t *testing.T) {
	f := fixture.NewCloned(t)
	tenant := func(s *engine.ExecutionSpec) {
		s.Namespace, s.Tags = "acme", map[string]string{events.InstanceTagKey: "i-1"}
	}
	var want []string
	for _, effect := range []engine.OnTimeout{engine.ResumeOnTimeout, engine.FailOnTimeout, engine.ExpireOnTimeout, engine.CancelOnTimeout} {
		l := f.Start(t, tenant).Lease
		f.SuspendAgain(t, l, ready, func(s *engine.SuspendSpec) { s.OnTimeout = effect })
		f.Advance(time.Hour)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
		if effect == engine.ResumeOnTimeout {
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := f.Start(t, tenant).Lease
	f.SuspendAgain(t, l, ready)
	f.Signal(t, l, "ready")
	f.SuspendAgain(t, f.ClaimOne(t).Lease, ready)
	if err := f.Engine.Resume(t.Context(), l.Execution, 0); err != nil {
		t.Fatal(err)
	}
	for _, outcome := range []string{"resumable", "cancelled", "failed", "expired", "cancelled", "resumable", "resumable"} {
		want = append(want, outcome+" acme i-1")
	}
	got := fixture.Texts(t, f.Pool, "SELECT concat_ws(' ', outcome, namespace, instance_tag) FROM ff_completion_event ORDER BY event_id")
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, outbox := range []string{"ff_signal_event", "ff_lease_event"} {
		if bare := fixture.Texts(t, f.Pool, "SELECT event_id::text FROM "+outbox+" WHERE (namespace, instance_tag) IS DISTINCT FROM ('acme', 'i-1')"); len(bare) > 0 {
			t.Errorf("%s: %q", outbox, bare)
		}
	}
	filtered := outcomes(t, f.Engine, events.Filter{Namespace: "acme", Tag: events.Tag{Key: events.InstanceTagKey, Value: "i-1"}}, 4)
	if fmt.Sprint(filtered) != "[cancelled failed expired cancelled]" {
		t.Error(filtered)
	}
}

// The list has open waits only, and goes on behind a wait that has ended meanwhile.
func TestWaitsAreListedOnceEach_S35(t *testing.T) {
	f := fixture.NewCloned(t)
	var want, got []id.ExecutionID
	leases := make([]engine.Lease, 7)
	for i := range leases {
		if i%3 != 2 { // others began at the same time
			f.Advance(time.Second)
		}
		leases[i] = f.Suspend(t, ready)
	}
	f.Signal(t, leases[0], "ready")
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: leases[6].Execution}); err != nil {
		t.Fatal(err)
	}
	for _, l := range leases[1:6] {
		want = append(want, l.Execution)
	}
	after := ""
	for {
		page, err := f.ListWaits(t.Context(), engine.WaitFilter{}, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range page.Items {
			got = append(got, wait.Execution)
		}
		if after = page.Next; after == "" {
			break
		}
		if err := f.Engine.Resume(t.Context(), page.Items[1].Execution, 0); err != nil {
			t.Fatal(err)
		}
	}
	byID := func(a, b id.ExecutionID) int { return slices.Compare([]byte(a.String()), []byte(b.String())) }
	slices.SortFunc(got, byID)
	slices.SortFunc(want, byID)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A page of waits with a name or a tag examines so many and no more, and says where it stopped.
func TestListWaitsExaminesABoundedNumber(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, `WITH made AS (INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state,
			eligibility_state, public_state, attempt_state, created_at_ms)
			SELECT i % 256, gen_random_uuid(), 'bulk', 'suspended', 'unowned', 'not_applicable', 'suspended', 'attempt_interrupted', 0
			FROM generate_series(1, $1::integer) AS i RETURNING partition_key, execution_id)
		INSERT INTO ff_suspension_current (partition_key, execution_id, suspension_id, suspended_at_ms, condition, ffx_open_since_ms)
		SELECT partition_key, execution_id, gen_random_uuid(), 1, '{}', 1 FROM made`, engine.MaxExamined+5)
	x := f.Suspend(t, engine.Received("ready")).Execution
	for _, c := range []struct {
		filter engine.WaitFilter
		pages  int
	}{
		{engine.WaitFilter{Name: "ready"}, 2},
		{engine.WaitFilter{Name: "ready", Examined: 5000}, 3},
	} {
		var got []id.ExecutionID
		pages := 0
		for after := ""; pages == 0 || after != ""; pages++ {
			page, err := f.ListWaits(t.Context(), c.filter, after, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, wait := range page.Items {
				got = append(got, wait.Execution)
			}
			after = page.Next
		}
		if pages != c.pages || !slices.Equal(got, []id.ExecutionID{x}) {
			t.Errorf("%+v: %v on %d pages, want %s on %d", c.filter, got, pages, x, c.pages)
		}
	}
	_, err := f.ListWaits(t.Context(), engine.WaitFilter{Examined: -1}, "", 10)
	fixture.WantInputError(t, err, "examined")
}
