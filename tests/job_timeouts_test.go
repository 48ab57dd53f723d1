package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// timingOut are what becomes of an execution whose attempt takes longer than a minute.
var timingOut = []struct {
	name    string
	retry   *policy.Retry
	retries int // scheduled before
	state   string
	events  []string // behind those of the lease
}{
	{"without a retry policy", nil, 0, stateRetry, []string{"lease expired"}},
	{"the third time without a retry policy", nil, 2, stateRetry, []string{"lease expired"}},
	{"too often without a retry policy", nil, 3, stateExpired, []string{"lease expired", "completion expired"}},
	{"retried", &policy.Retry{Backoff: policy.Fixed(time.Second)}, 0, stateBackoff, []string{"lease expired"}},
	{"retried at once", &policy.Retry{Backoff: policy.Fixed(0)}, 0, stateRetry, []string{"lease expired"}},
	{"category listed", &policy.Retry{Categories: []string{"timeout"}}, 0, stateBackoff, []string{"lease expired"}},
	{"category not listed", &policy.Retry{Categories: []string{"net"}}, 0, stateExpired, []string{"lease expired", "completion expired"}},
	{"retries used up", &policy.Retry{}, 3, stateExpired, []string{"lease expired", "completion expired"}},
}

func timingOutAfter(d time.Duration, retry *policy.Retry) func(*engine.ExecutionSpec) {
	return func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{Retry: retry, AttemptTimeout: d}
	}
}

func TestE14_attempts_time_out(t *testing.T) {
	for _, c := range timingOut {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			held := f.start(t, timingOutAfter(time.Minute, c.retry))
			f.setExecution(t, held.ID, fmt.Sprintf("ffx_retry_count = %d", c.retries))
			f.seedGrant(t, held.ID)
			if _, err := f.RenewLease(t.Context(), held.Lease, time.Hour); err != nil {
				t.Fatal(err)
			}
			f.advance(time.Minute - time.Millisecond)
			run(t, f.Maintenance().ExpireAttempts, 0)
			f.advance(time.Millisecond)
			run(t, f.Maintenance().ExpireAttempts, 1)
			run(t, f.Maintenance().ExpireAttempts, 0)
			f.wantTimedOut(t, held, c.state, c.retries)
			f.wantEvents(t, held.ID, append([]string{"lease acquired", "lease renewed"}, c.events...)...)
		})
	}
}

// wantTimedOut fails the test unless the execution ended, or is retried, because its first attempt took too long.
func (f *fixture) wantTimedOut(t *testing.T, held engine.Claimed, state string, retries int) {
	t.Helper()
	stored, attempt := f.stored(t, held.ID), f.attempts(t, held.ID)[0]
	ended := state == stateExpired
	outcome, pointer, used := "interrupted", int32(1), int32(retries+1)
	if ended {
		outcome, pointer, used = "expired", 0, int32(retries)
	}
	if stored.State != state || stored.AttemptIndex != pointer || stored.LeaseEpoch != 2 || stored.RetryCount != used ||
		stored.ReclaimCount != 0 || (stored.raw(t, "last_failure_message") == "attempt_timeout") != ended {
		t.Errorf("stored %+v", stored)
	}
	if attempt.Outcome != outcome || attempt.LeaseEpoch != 2 || attempt.LeaseExpiresAtMs != nil || attempt.TimeoutAtMs != nil ||
		*attempt.TerminalAtMs != f.now().UnixMilli() {
		t.Errorf("attempt %+v", attempt)
	}
	if !ended {
		wantJSON(t, attempt.RawFields, `{"failure_reason":"attempt_timeout","failure_category":"timeout","failure_class":"timeout"}`)
	}
	if left := f.grants(t, held.ID); (left == 0) != ended {
		t.Errorf("%d grants are left", left)
	}
	wantLeaseError(t, f.CompleteExecution(t.Context(), held.Lease, nil), engine.ErrStaleLease)
}

// The worker of an attempt dies, and the time of the attempt is over before anybody looks at its lease: it ends by its
// timeout, whichever job is the first to meet it.
func TestA7_timeout_whichever_job_comes_first(t *testing.T) {
	for _, c := range timingOut {
		for name, jobs := range map[string]func(*fixture) [2]job{
			"lease first":   func(f *fixture) [2]job { return [2]job{f.Maintenance().ExpireLeases, f.Maintenance().ExpireAttempts} },
			"timeout first": func(f *fixture) [2]job { return [2]job{f.Maintenance().ExpireAttempts, f.Maintenance().ExpireLeases} },
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				f := cloneFixture(t)
				held := f.start(t, timingOutAfter(time.Minute, c.retry))
				f.setExecution(t, held.ID, fmt.Sprintf("ffx_retry_count = %d", c.retries))
				f.seedGrant(t, held.ID)
				f.advance(time.Minute)
				run(t, jobs(f)[0], 1)
				run(t, jobs(f)[1], 0)
				f.wantTimedOut(t, held, c.state, c.retries)
				f.wantEvents(t, held.ID, append([]string{"lease acquired"}, c.events...)...)
			})
		}
	}
}

// A timeout counts as long as it is that of the lease: not of one that another program gave since, nor before its time,
// nor for an execution that is not active any more.
func TestA7_only_the_timeout_of_the_lease(t *testing.T) {
	for _, c := range []struct {
		name  string
		since func(t *testing.T, f *fixture, x id.ExecutionID)
		state string // "" as it was
	}{
		{"not yet", func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.setAttempt(t, x, 0, fmt.Sprintf("ffx_timeout_at_ms = %d", start.Add(time.Hour).UnixMilli()))
		}, stateReturned},
		{"leased by another program", func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.setAttempt(t, x, 0, "lease_epoch = 2")
		}, stateReturned},
		{"suspended", func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.setExecution(t, x, "lifecycle_phase = 'suspended', attempt_state = 'attempt_interrupted'")
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.start(t, timingOutAfter(time.Second, nil)).ID
			c.since(t, f, x)
			want := c.state
			if want == "" {
				want = f.stored(t, x).State
			}
			f.advance(time.Minute)
			run(t, f.Maintenance().ExpireLeases, 1)
			f.wantState(t, x, want)
			if got := f.stored(t, x); got.RetryCount != 0 {
				t.Errorf("stored %+v, want no retry", got)
			}
		})
	}
}

// The rule for a timeout that the engine finds is that for one which a worker reports.
func TestN5_a_timeout_is_retried_as_any_failure(t *testing.T) {
	for _, c := range timingOut {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			for _, failure := range []engine.Failure{{Class: policy.TimedOut}, {Class: policy.Transient, Category: "timeout"}} {
				held := f.start(t, timingOutAfter(time.Minute, c.retry))
				f.setExecution(t, held.ID, fmt.Sprintf("ffx_retry_count = %d", c.retries))
				failed := f.fail(t, held.Lease, failure)
				want := c.state
				if want == stateExpired {
					want = stateFailed
				}
				if failed.Retry != (want != stateFailed) {
					t.Errorf("%+v: got %+v", failure, failed)
				}
				f.wantState(t, held.ID, want)
				f.exec(t, "UPDATE ff_exec_core SET lane_id = 'done' WHERE lane_id = $1", f.lane)
			}
		})
	}
}

// The timeout of an earlier lease is not that of the attempt which another program leased since: it is forgotten.
func TestExpireAttempts_only_of_this_library(t *testing.T) {
	f := cloneFixture(t)
	for name, set := range map[string]func(x id.ExecutionID){
		"leased by another program": func(x id.ExecutionID) { f.setAttempt(t, x, 0, "lease_epoch = 2") },
		"superseded": func(x id.ExecutionID) {
			f.seedAttempt(t, x, 1, nil)
			f.setExecution(t, x, "attempt_index = 1")
		},
		"not active":    func(x id.ExecutionID) { f.setExecution(t, x, "lifecycle_phase = 'suspended'") },
		"without lease": func(x id.ExecutionID) { f.setAttempt(t, x, 0, "lease_expires_at_ms = NULL") },
	} {
		c := f.start(t, timingOutAfter(time.Millisecond, nil))
		set(c.ID)
		timeoutAt := *f.attempts(t, c.ID)[0].TimeoutAtMs
		f.setAttempt(t, c.ID, 0, "ffx_timeout_at_ms = NULL")
		forgotten := f.dump(t, c.ID)
		f.setAttempt(t, c.ID, 0, fmt.Sprintf("ffx_timeout_at_ms = %d", timeoutAt))
		f.advance(time.Second)
		t.Log(name)
		run(t, f.Maintenance().ExpireAttempts, 1)
		f.wantUnchanged(t, c.ID, forgotten)
		run(t, f.Maintenance().ExpireAttempts, 0)
	}
}

func TestExpireAttempts_with_the_longest_timeout(t *testing.T) {
	f := cloneFixture(t)
	f.setExecution(t, f.create(t), `policy = '{"timeout_policy":{"attempt_timeout_ms":9223372036854775807}}'`)
	c := f.claim(t)
	if got := *f.attempts(t, c.ID)[0].TimeoutAtMs; got != 1<<63-1 {
		t.Errorf("times out at %d", got)
	}
	run(t, f.Maintenance().ExpireAttempts, 0)
}
