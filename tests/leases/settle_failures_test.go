package leases

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestFailExecutionSchedulesARetry(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t, fixture.Retrying(policy.Retry{Backoff: policy.Fixed(5 * time.Second)}), func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Hour) })
	f.Advance(time.Second)
	now, wake := f.Time().UnixMilli(), f.Time().Add(5*time.Second)
	raw := f.Stored(t, c.ID).RawFields
	failed := f.Fail(t, c.Lease, engine.Failure{Message: "no luck", Category: "upstream"})
	if want := (engine.Failed{Retry: true, RetryAt: wake, NextAttempt: 1}); failed != want {
		t.Errorf("got %+v, want %+v", failed, want)
	}
	stored := f.Stored(t, c.ID)
	if stored.State != fixture.StateBackoff || stored.AttemptIndex != 1 || stored.RetryCount != 1 || stored.LeaseEpoch != 1 ||
		*stored.DelayUntilMs != wake.UnixMilli() || *stored.DeadlineAtMs != wake.UnixMilli() ||
		*stored.LastDeadline != fixture.Start.Add(time.Hour).UnixMilli() || *stored.LastMutation != now || stored.TerminalAtMs != nil {
		t.Errorf("stored %+v", stored)
	}
	if stored.RawFields != raw {
		t.Errorf("raw_fields became %s", stored.RawFields)
	}
	attempts := f.StoredAttempts(t, c.ID)
	if len(attempts) != 1 || attempts[0].Outcome != "retry" || *attempts[0].TerminalAtMs != now || attempts[0].LeaseExpiresAtMs != nil ||
		*attempts[0].DelayUntilMs != wake.UnixMilli() || attempts[0].LeaseEpoch != 1 {
		t.Errorf("attempts %+v", attempts)
	}
	fixture.WantJSON(t, attempts[0].RawFields, `{"failure_reason":"no luck","failure_category":"upstream","failure_class":"transient"}`)
	f.WantEvents(t, c.ID, "lease acquired", "lease revoked backend")
	f.WantNothingClaimable(t)
}

// The detail of a failure is kept with its attempt, whether that is retried or not, and nowhere else.
func TestFailureDetailIsStoredWithTheAttempt(t *testing.T) {
	f := fixture.New(t)
	first := f.Start(t, fixture.Retrying(policy.Retry{MaxRetries: 1, Backoff: policy.Fixed(0)}))
	f.Fail(t, first.Lease, engine.Failure{Message: "no luck", Detail: "first\nstack"})
	last := f.ClaimOne(t)
	f.Fail(t, last.Lease, engine.Failure{Message: "no luck again", Detail: "second\nstack"})
	if stored := f.Stored(t, last.ID); stored.State != fixture.StateFailed || strings.Contains(stored.RawFields, "stack") {
		t.Errorf("stored %+v", stored)
	}
	details := func() (all []string) {
		for a, err := range f.Attempts(t.Context(), last.ID) {
			if err != nil {
				t.Fatal(err)
			}
			if a.Failure != nil {
				all = append(all, a.Failure.Detail)
			}
		}
		return all
	}
	if got := details(); !slices.Equal(got, []string{"first\nstack", "second\nstack"}) {
		t.Errorf("details %q", got)
	}
	if _, err := f.ExecutionResult(t.Context(), last.ID); err == nil || strings.Contains(err.Error(), "stack") {
		t.Errorf("its result is %v", err)
	}
	if _, err := operator.Replay(t.Context(), f.Engine, last.ID, operator.ReplayCompleted); err != nil {
		t.Fatal(err)
	}
	again := f.ClaimOne(t)
	f.Fail(t, again.Lease, engine.Failure{Message: "without", Class: policy.Permanent})
	if got := details(); !slices.Equal(got, []string{"first\nstack", ""}) {
		t.Errorf("details after a replay %q", got)
	}
	for name, failure := range map[string]engine.Failure{
		"long": {Detail: strings.Repeat("x", engine.MaxFailureMessage+1)}, "zero byte": {Detail: "\x00"}, "no UTF-8": {Detail: "\xff"},
	} {
		if _, err := f.FailExecution(t.Context(), again.Lease, failure); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFailExecutionRetriesImmediately(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t, fixture.Retrying(policy.Retry{Backoff: policy.Fixed(0)}), func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Hour) })
	if got, want := f.Fail(t, c.Lease, engine.Failure{}), (engine.Failed{Retry: true, RetryAt: fixture.Start, NextAttempt: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	stored := f.Stored(t, c.ID)
	if stored.State != fixture.StateRetry || stored.DelayUntilMs != nil || *stored.DeadlineAtMs != fixture.Start.Add(time.Hour).UnixMilli() {
		t.Errorf("stored %+v", stored)
	}
	if next := f.ClaimOne(t); next.Lease.Attempt != 1 || next.Lease.Epoch != 2 || next.Type != state.RetryAttempt || next.Retries != 1 || next.Resumed {
		t.Errorf("claimed %+v", next)
	}
}

func TestFailExecutionPermanently(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	f.Advance(time.Second)
	now := f.Time().UnixMilli()
	if got := f.Fail(t, c.Lease, engine.Failure{Message: "broken", Class: policy.Permanent, Category: "bad_input"}); got != (engine.Failed{}) {
		t.Errorf("got %+v, want the end", got)
	}
	stored := f.Stored(t, c.ID)
	if stored.State != fixture.StateFailed || *stored.TerminalAtMs != now || stored.AttemptIndex != 0 || stored.RetryCount != 0 || stored.CancelReason != nil {
		t.Errorf("stored %+v", stored)
	}
	for key, want := range map[string]string{
		"failure_reason": "broken", "failure_category": "bad_input", "failure_class": "permanent", "last_failure_message": "broken", "last_mutation_at": fmt.Sprint(now),
	} {
		if got := stored.Raw(t, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	attempt := f.StoredAttempts(t, c.ID)[0]
	if attempt.Outcome != "failed" || *attempt.TerminalAtMs != now || attempt.LeaseExpiresAtMs != nil || attempt.LeaseEpoch != 1 {
		t.Errorf("attempt %+v", attempt)
	}
	f.WantEvents(t, c.ID, "lease acquired", "lease revoked backend", "completion failed")
	if got := f.Describe(t, c.ID); got.FailureReason != "broken" || got.State.Outcome != state.OutcomeFailed {
		t.Errorf("described as %+v", got)
	}
}

func TestFailExecutionDecidesOnARetry(t *testing.T) {
	only := func(categories ...string) *policy.Execution {
		return &policy.Execution{Retry: &policy.Retry{Categories: categories}}
	}
	atMost := func(n int) *policy.Execution { return &policy.Execution{Retry: &policy.Retry{MaxRetries: n}} }
	f := fixture.New(t)
	for _, c := range []struct {
		name    string
		policy  *policy.Execution
		retries int // scheduled before
		failure engine.Failure
		want    bool
	}{
		{"nothing said", nil, 0, engine.Failure{}, true},
		{"transient", nil, 0, engine.Failure{Class: policy.Transient}, true},
		{"crash", nil, 0, engine.Failure{Class: policy.InfraCrash}, true},
		{"permanent", nil, 0, engine.Failure{Class: policy.Permanent}, false},
		{"cancelled", nil, 0, engine.Failure{Class: policy.Cancelled}, false},
		{"timeout", nil, 0, engine.Failure{Class: policy.TimedOut}, true},
		{"timeout, listed", only("timeout"), 0, engine.Failure{Class: policy.TimedOut}, true},
		{"timeout of another category, timeouts listed", only("timeout"), 0, engine.Failure{Class: policy.TimedOut, Category: "slow"}, false},
		{"timeout of a category that is listed", only("slow"), 0, engine.Failure{Class: policy.TimedOut, Category: "slow"}, true},
		{"timeout, not listed", only("net"), 0, engine.Failure{Class: policy.TimedOut}, false},
		{"timeout, all categories retried", only(), 0, engine.Failure{Class: policy.TimedOut}, true},
		{"permanent, though its category is listed", only("bad"), 0, engine.Failure{Class: policy.Permanent, Category: "bad"}, false},
		{"category listed", only("net", "disk"), 0, engine.Failure{Category: "disk"}, true},
		{"category not listed", only("net"), 0, engine.Failure{Category: "disk"}, false},
		{"the class is the category", only("transient"), 0, engine.Failure{}, true},
		{"the class is the category, not listed", only("infra_crash"), 0, engine.Failure{}, false},
		{"last retry without a policy", nil, 23, engine.Failure{}, true},
		{"retries used up without a policy", nil, 24, engine.Failure{}, false},
		{"no retries", atMost(policy.NoRetries), 0, engine.Failure{}, false},
		{"last retry", atMost(2), 1, engine.Failure{}, true},
		{"retries used up", atMost(2), 2, engine.Failure{}, false},
		{"more than fit", atMost(math.MaxInt32), 1 << 30, engine.Failure{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Policy = c.policy })
			f.SetExecution(t, held.ID, fmt.Sprintf("ffx_retry_count = %d", c.retries))
			if got := f.Fail(t, held.Lease, c.failure); got.Retry != c.want {
				t.Errorf("got %+v, want a retry: %t", got, c.want)
			}
			stored := f.Stored(t, held.ID)
			if retried := stored.AttemptIndex == 1 && strings.HasPrefix(stored.State, "runnable"); retried != c.want {
				t.Errorf("stored %+v, want a retry: %t", stored, c.want)
			}
			f.Exec(t, "UPDATE ff_exec_core SET lane_id = 'done' WHERE lane_id = $1", f.Lane)
		})
	}
}

func TestFailExecutionBackoff(t *testing.T) {
	jitter := policy.Exponential(time.Second, time.Minute)
	jitter.Jitter = true
	f := fixture.New(t)
	for _, c := range []struct {
		name     string
		backoff  policy.Backoff
		retries  int
		min, max time.Duration
	}{
		{"fixed", policy.Fixed(250 * time.Millisecond), 2, 250 * time.Millisecond, 250 * time.Millisecond},
		{"default", policy.Backoff{}, 0, time.Second, time.Second},
		{"default, third time", policy.Backoff{}, 2, 30 * time.Second, 30 * time.Second},
		{"exponential", policy.Backoff{First: 100 * time.Millisecond, Max: 10 * time.Second, Factor: 3}, 2, 900 * time.Millisecond, 900 * time.Millisecond},
		{"exponential, cut", policy.Backoff{First: 100 * time.Millisecond, Max: 500 * time.Millisecond, Factor: 3}, 2, 500 * time.Millisecond, 500 * time.Millisecond},
		{"shrinking", policy.Backoff{First: time.Second, Max: 5 * time.Second, Factor: 0.5}, 1, 500 * time.Millisecond, 500 * time.Millisecond},
		{"jitter", jitter, 1, time.Second, 2 * time.Second},
		{"jitter of a fixed pause", policy.Backoff{First: time.Second, Max: time.Second, Factor: 1, Jitter: true}, 1, 500 * time.Millisecond, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 5 {
				held := f.Start(t, fixture.Retrying(policy.Retry{MaxRetries: 10, Backoff: c.backoff}))
				f.SetExecution(t, held.ID, fmt.Sprintf("ffx_retry_count = %d", c.retries))
				if pause := f.Fail(t, held.Lease, engine.Failure{}).RetryAt.Sub(f.Time()); pause < c.min || pause > c.max {
					t.Errorf("pause of %v, want %v to %v", pause, c.min, c.max)
				}
			}
		})
	}
}

// A retry that would come after the deadline is scheduled all the same; the deadline ends it.
func TestFailExecutionRetriesBeyondItsDeadline(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t, fixture.Retrying(policy.Retry{Backoff: policy.Fixed(time.Minute)}), func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) })
	if got, want := f.Fail(t, c.Lease, engine.Failure{}), fixture.Start.Add(time.Minute); !got.Retry || !got.RetryAt.Equal(want) {
		t.Errorf("got %+v, want a retry at %v", got, want)
	}
	if got := f.Stored(t, c.ID); got.State != fixture.StateBackoff || *got.DeadlineAtMs != fixture.Start.Add(time.Second).UnixMilli() {
		t.Errorf("stored %+v", got)
	}
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 0)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
	f.WantState(t, c.ID, fixture.StateExpired)
}

// Without end, and never wrapping round.
func TestFailExecutionWithTheLongestBackoff(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	f.SetExecution(t, c.ID, `policy = '{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":9223372036854775807}}}'`)
	f.Fail(t, c.Lease, engine.Failure{})
	if got := f.Stored(t, c.ID); got.State != fixture.StateBackoff || *got.DelayUntilMs != 1<<63-1 {
		t.Errorf("stored %+v", got)
	}
}

// The reference's fail by handle knows neither limits nor pauses: it retries at once for ever.
func TestRetriesEnd_E19(t *testing.T) {
	f := fixture.New(t)
	f.Create(t, fixture.Retrying(*policy.ImmediateRetries(3)))
	for attempt := range 4 {
		c := f.ClaimOne(t)
		failed := f.Fail(t, c.Lease, engine.Failure{Message: "again"})
		if c.Lease.Attempt != attempt || failed.Retry != (attempt < 3) {
			t.Errorf("attempt %d, want %d; %+v", c.Lease.Attempt, attempt, failed)
		}
	}
	f.WantNothingClaimable(t)
}

// The reference's typed fail leaves the pointer on the ended attempt, and an outcome that it cannot read itself.
func TestFailedAttemptIsLeftBehind_E20(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t, fixture.Retrying(*policy.ImmediateRetries(0)))
	f.Fail(t, c.Lease, engine.Failure{})
	if got := f.Stored(t, c.ID).AttemptIndex; got != 1 {
		t.Errorf("the pointer stands at %d, want 1", got)
	}
	next := f.ClaimOne(t)
	f.Fail(t, next.Lease, engine.Failure{Class: policy.Permanent})
	var outcomes []string
	for _, a := range f.StoredAttempts(t, c.ID) {
		outcomes = append(outcomes, a.Outcome)
	}
	if want := []string{"retry", "failed"}; !slices.Equal(outcomes, want) {
		t.Errorf("outcomes %q, want %q", outcomes, want)
	}
}

// The reference takes a policy that it cannot read for "no retries", and knows no jitter.
func TestMalformedRetryPolicyIsRefused_E21(t *testing.T) {
	f := fixture.New(t)
	for field, backoff := range map[string]policy.Backoff{
		"Max":    {First: time.Second, Factor: 2},
		"Factor": {First: 1, Max: 2, Factor: math.Inf(1)},
	} {
		_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{
			Kind: "test",
			Lane: f.Lane, Policy: &policy.Execution{Retry: &policy.Retry{Backoff: backoff}},
		})
		fixture.WantInputError(t, err, "Policy.Retry.Backoff."+field)
		if refused, ok := errors.AsType[*policy.FieldError](err); !ok || refused.Field != "Retry.Backoff."+field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if got := f.CountOnLane(t); got != 0 {
		t.Errorf("%d executions were created", got)
	}
}

// Policies of other programs are read by their meaning.
func TestFailExecutionReadsForeignPolicies(t *testing.T) {
	f := fixture.New(t)
	for _, c := range []struct {
		name, stored string
		want         string // pause in ms; "" for no retry
	}{
		{"no number of retries", `{"retry_policy":{}}`, ""},
		{"null", `{"retry_policy":null}`, "1000"},
		{"no object", `[]`, "1000"},
		{"a retry policy that is no object", `{"retry_policy":[1]}`, "1000"},
		{"parts of a backoff", `{"retry_policy":{"max_retries":1,"backoff":{"type":"exponential"}}}`, "1000"},
		{"no backoff", `{"retry_policy":{"max_retries":1}}`, "1000"},
		{"an unknown backoff", `{"retry_policy":{"max_retries":1,"backoff":{"type":"other"}}}`, "1000"},
		{"a fixed backoff without its pause", `{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed"}}}`, "1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := f.Start(t)
			f.SetExecution(t, held.ID, "policy = '"+c.stored+"'")
			failed := f.Fail(t, held.Lease, engine.Failure{})
			got := ""
			if failed.Retry {
				got = fmt.Sprint(failed.RetryAt.Sub(f.Time()).Milliseconds())
			}
			if got != c.want {
				t.Errorf("retried after %q ms, want %q", got, c.want)
			}
			f.Exec(t, "UPDATE ff_exec_core SET lane_id = 'done' WHERE lane_id = $1", f.Lane)
		})
	}
}

// The reference casts the counter to a number in SQL: one value that is none breaks every failure of the execution.
func TestFailToleratesABadRetryCount_E52(t *testing.T) {
	f := fixture.New(t)
	for raw, want := range map[string]int32{`""`: 1, `"many"`: 1, `"2"`: 3, `2`: 3, `"-1"`: 1, `null`: 1, `{}`: 1, `"99999999999"`: 1} {
		c := f.Start(t, fixture.Retrying(policy.Retry{MaxRetries: 10}))
		f.SetExecution(t, c.ID, `raw_fields = raw_fields || '{"retry_count":`+raw+`}'`)
		if failed := f.Fail(t, c.Lease, engine.Failure{}); !failed.Retry {
			t.Errorf("%s: %+v", raw, failed)
		}
		if got := f.Stored(t, c.ID).RetryCount; got != want {
			t.Errorf("%s: counted as %d, want %d", raw, got, want)
		}
	}
}

// A failure that is repeated, since its answer was lost, changes nothing and answers as the first did. The reference
// counts it again: attempts are skipped.
func TestFailMayBeRepeated_E42(t *testing.T) {
	for _, c := range []struct {
		name    string
		policy  policy.Retry
		failure engine.Failure
		later   func(f *fixture.Fixture, t *testing.T)
	}{
		{"retry after a pause", policy.Retry{}, engine.Failure{}, func(*fixture.Fixture, *testing.T) {}},
		{"retry at once, claimed since", policy.Retry{Backoff: policy.Fixed(0)}, engine.Failure{}, func(f *fixture.Fixture, t *testing.T) { f.ClaimOne(t) }},
		{"the end", policy.Retry{}, engine.Failure{Class: policy.Permanent}, func(*fixture.Fixture, *testing.T) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			held := f.Start(t, fixture.Retrying(c.policy))
			first := f.Fail(t, held.Lease, c.failure)
			c.later(f, t)
			before := f.Dump(t, held.ID)
			f.Advance(time.Hour)
			if again := f.Fail(t, held.Lease, engine.Failure{Message: "again", Class: policy.Permanent}); again != first {
				t.Errorf("got %+v, want %+v", again, first)
			}
			f.WantUnchanged(t, held.ID, before)
		})
	}
}

// So is one that the reference has recorded.
func TestFailRecordedByTheReferenceMayBeRepeated_E42(t *testing.T) {
	f := fixture.New(t)
	for _, c := range []struct {
		phase string
		want  engine.Failed
	}{
		{"terminal", engine.Failed{}},
		{"runnable", engine.Failed{Retry: true, RetryAt: fixture.Start.Add(time.Minute), NextAttempt: 1}},
	} {
		held := f.Start(t)
		f.SetExecution(t, held.ID, "lifecycle_phase = '"+c.phase+"', ownership_state = 'unowned', eligibility_state = 'not_applicable'")
		f.SetAttempt(t, held.ID, 0, fmt.Sprintf("outcome = 'failure', lease_expires_at_ms = NULL, terminal_at_ms = %d", fixture.Start.Add(time.Minute).UnixMilli()))
		before := f.Dump(t, held.ID)
		if got := f.Fail(t, held.Lease, engine.Failure{}); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.phase, got, c.want)
		}
		f.WantUnchanged(t, held.ID, before)
	}
}

func TestFailExecutionsKeepsInputOrder(t *testing.T) {
	f := fixture.New(t)
	held := f.StartMany(t, 4)
	slices.Reverse(held)
	f.SetAttempt(t, held[2].ID, 0, "lease_epoch = 7")
	f.SetExecution(t, held[3].ID, "attempt_index = 1")
	missing := held[0].Lease
	missing.Execution = id.NewExecutionID(f.Lane, id.Partitions{})
	f.RetryAtOnce(t, held[1].ID, held[3].ID)
	got, err := f.FailExecutions(t.Context(), []engine.AttemptFailure{
		{Lease: held[0].Lease, Failure: engine.Failure{Message: "0", Class: policy.Permanent}},
		{Lease: held[1].Lease, Failure: engine.Failure{Message: "1"}},
		{Lease: held[2].Lease, Failure: engine.Failure{}},
		{Lease: missing, Failure: engine.Failure{}},
		{Lease: held[1].Lease, Failure: engine.Failure{Message: "again", Class: policy.Permanent}},
		{Lease: held[3].Lease, Failure: engine.Failure{Class: "odd"}},
		{Lease: held[3].Lease, Failure: engine.Failure{Message: "3"}},
		{Lease: held[0].Lease, Failure: engine.Failure{Message: "again"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	retry := fferr.Outcome[engine.Failed]{Value: engine.Failed{Retry: true, RetryAt: fixture.Start, NextAttempt: 1}}
	for i, want := range []fferr.Outcome[engine.Failed]{
		{}, retry, {Err: fferr.ErrStaleLease}, {Err: fferr.ErrNotFound}, retry, {Err: fferr.ErrInvalidInput}, retry, {},
	} {
		if !errors.Is(got[i].Err, want.Err) {
			t.Errorf("outcome %d is %v, want %v", i, got[i].Err, want.Err)
		}
		got[i].Err, want.Err = nil, nil
		if got[i] != want {
			t.Errorf("outcome %d is %+v, want %+v", i, got[i], want)
		}
	}
	f.WantState(t, held[0].ID, fixture.StateFailed)
	if got := f.Stored(t, held[0].ID).Raw(t, "failure_reason"); got != "0" {
		t.Errorf("failure %q, want the first", got)
	}
	for _, i := range []int{1, 3} {
		if got := f.Stored(t, held[i].ID); got.State != fixture.StateRetry || got.AttemptIndex != 1 || got.RetryCount != 1 {
			t.Errorf("execution %d: %+v", i, got)
		}
		f.WantEvents(t, held[i].ID, "lease acquired", "lease revoked backend")
	}
	f.WantState(t, held[2].ID, fixture.StateRunning)
}

func TestFailExecutionsInSeveralStatements(t *testing.T) {
	f := fixture.New(t)
	held := slices.Concat(f.StartMany(t, engine.MaxBatch), f.StartMany(t, 5))
	failures := make([]engine.AttemptFailure, len(held))
	for i, c := range held {
		failures[i] = engine.AttemptFailure{Lease: c.Lease, Failure: engine.Failure{Class: policy.Permanent, Message: fmt.Sprint(i)}}
	}
	got, err := f.FailExecutions(t.Context(), failures)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != (fferr.Outcome[engine.Failed]{}) {
			t.Fatalf("outcome %d: %+v", i, got[i])
		}
	}
	for _, i := range []int{0, engine.MaxBatch, len(held) - 1} {
		if got := f.Stored(t, held[i].ID); got.State != fixture.StateFailed || got.Raw(t, "failure_reason") != fmt.Sprint(i) {
			t.Errorf("execution %d: %+v", i, got)
		}
	}
}

// A retry that waits is admitted again when it wakes; one at once keeps its admission.
func TestFailExecutionReturnsAdmissions(t *testing.T) {
	f := fixture.New(t)
	quota := id.NewQuotaPolicyID()
	for _, c := range []struct {
		name     string
		backoff  policy.Backoff
		class    policy.Class
		state    string
		admitted bool
		slots    int
	}{
		{"retry after a pause", policy.Fixed(time.Second), policy.Transient, fixture.StateBackoff, false, 0},
		{"retry at once", policy.Fixed(0), policy.Transient, fixture.StateRetry, true, 1},
		{"the end", policy.Fixed(0), policy.Permanent, fixture.StateFailed, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := f.Create(t, fixture.Retrying(policy.Retry{Backoff: c.backoff}))
			f.Attach(t, x, nil, &quota)
			f.Admit(t, x)
			f.Fail(t, f.ClaimOne(t).Lease, engine.Failure{Class: c.class})
			got := f.Stored(t, x)
			if got.State != c.state || (got.Admitted != nil) != c.admitted || f.Slots(t, x) != c.slots || got.GateID != nil {
				t.Errorf("stored %+v with %d slots", got, f.Slots(t, x))
			}
			f.Exec(t, "UPDATE ff_exec_core SET lane_id = 'done' WHERE lane_id = $1", f.Lane)
		})
	}
}
