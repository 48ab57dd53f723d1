package upkeep

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// timingOut are the possible results of an execution whose attempt takes longer than a minute.
var timingOut = []struct {
	name    string
	retry   *policy.Retry
	retries int // scheduled before
	state   string
	events  []string // behind those of the lease
}{
	{"without a retry policy", nil, 0, fixture.StateBackoff, []string{"lease expired"}},
	{"the last time without a retry policy", nil, 23, fixture.StateBackoff, []string{"lease expired"}},
	{"too often without a retry policy", nil, 24, fixture.StateExpired, []string{"lease expired", "completion expired"}},
	{"retried", &policy.Retry{Backoff: policy.Fixed(time.Second)}, 0, fixture.StateBackoff, []string{"lease expired"}},
	{"retried at once", policy.ImmediateRetries(0), 0, fixture.StateRetry, []string{"lease expired"}},
	{"category listed", &policy.Retry{Categories: []string{"timeout"}}, 0, fixture.StateBackoff, []string{"lease expired"}},
	{"category not listed", &policy.Retry{Categories: []string{"net"}}, 0, fixture.StateExpired, []string{"lease expired", "completion expired"}},
	{"retries used up", &policy.Retry{}, 24, fixture.StateExpired, []string{"lease expired", "completion expired"}},
}

func TestAttemptsTimeOut_E14(t *testing.T) {
	for _, c := range timingOut {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			held := f.Start(t, fixture.TimingOutAfter(time.Minute, c.retry))
			f.SetExecution(t, held.ID, fmt.Sprintf("ffx_retry_count = %d", c.retries))
			f.SeedGrant(t, held.ID)
			if _, err := f.RenewLease(t.Context(), held.Lease, time.Hour); err != nil {
				t.Fatal(err)
			}
			f.Advance(time.Minute - time.Millisecond)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 0)
			f.Advance(time.Millisecond)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 0)
			wantTimedOut(t, f, held, c.state, c.retries)
			f.WantEvents(t, held.ID, append([]string{"lease acquired", "lease renewed"}, c.events...)...)
		})
	}
}

// wantTimedOut fails the test unless the execution ended, or is retried, because its first attempt took too long.
func wantTimedOut(t *testing.T, f *fixture.Fixture, held engine.Claimed, state string, retries int) {
	t.Helper()
	stored, attempt := f.Stored(t, held.ID), f.StoredAttempts(t, held.ID)[0]
	ended := state == fixture.StateExpired
	outcome, pointer, used := "interrupted", int32(1), int32(retries+1)
	if ended {
		outcome, pointer, used = "expired", 0, int32(retries)
	}
	if stored.State != state || stored.AttemptIndex != pointer || stored.LeaseEpoch != 2 || stored.RetryCount != used ||
		stored.ReclaimCount != 0 || (stored.Raw(t, "last_failure_message") == "attempt_timeout") != ended {
		t.Errorf("stored %+v", stored)
	}
	if attempt.Outcome != outcome || attempt.LeaseEpoch != 2 || attempt.LeaseExpiresAtMs != nil || attempt.TimeoutAtMs != nil ||
		*attempt.TerminalAtMs != f.Time().UnixMilli() {
		t.Errorf("attempt %+v", attempt)
	}
	if !ended {
		fixture.WantJSON(t, attempt.RawFields, `{"failure_reason":"attempt_timeout","failure_category":"timeout","failure_class":"timeout"}`)
	}
	if left := f.CountGrants(t, held.ID); (left == 0) != ended {
		t.Errorf("%d grants are left", left)
	}
	fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), held.Lease, nil), fferr.ErrStaleLease)
}

// The worker of an attempt dies, and the time of the attempt is over before anybody looks at its lease: it ends by its
// timeout, whichever job is the first to meet it.
func TestTimeoutWinsWhicheverJobComesFirst(t *testing.T) {
	for _, c := range timingOut {
		for name, jobs := range map[string]func(*fixture.Fixture) [2]fixture.Job{
			"lease first": func(f *fixture.Fixture) [2]fixture.Job {
				return [2]fixture.Job{upkeep.Of(f.Engine).ExpireLeases, upkeep.Of(f.Engine).ExpireAttempts}
			},
			"timeout first": func(f *fixture.Fixture) [2]fixture.Job {
				return [2]fixture.Job{upkeep.Of(f.Engine).ExpireAttempts, upkeep.Of(f.Engine).ExpireLeases}
			},
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				f := fixture.NewCloned(t)
				held := f.Start(t, fixture.TimingOutAfter(time.Minute, c.retry))
				f.SetExecution(t, held.ID, fmt.Sprintf("ffx_retry_count = %d", c.retries))
				f.SeedGrant(t, held.ID)
				f.Advance(time.Minute)
				fixture.Run(t, jobs(f)[0], 1)
				fixture.Run(t, jobs(f)[1], 0)
				wantTimedOut(t, f, held, c.state, c.retries)
				f.WantEvents(t, held.ID, append([]string{"lease acquired"}, c.events...)...)
			})
		}
	}
}

// A timeout counts as long as it is that of the lease: not of one that another program gave since, nor before its time,
// nor for an execution that is not active any more.
func TestOnlyTheLeasesOwnTimeoutCounts(t *testing.T) {
	for _, c := range []struct {
		name  string
		since func(t *testing.T, f *fixture.Fixture, x id.ExecutionID)
		state string // "" as it was
	}{
		{"not yet", func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SetAttempt(t, x, 0, fmt.Sprintf("ffx_timeout_at_ms = %d", fixture.Start.Add(time.Hour).UnixMilli()))
		}, fixture.StateReturned},
		{"leased by another program", func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SetAttempt(t, x, 0, "lease_epoch = 2")
		}, fixture.StateReturned},
		{"suspended", func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SetExecution(t, x, "lifecycle_phase = 'suspended', attempt_state = 'attempt_interrupted'")
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := f.Start(t, fixture.TimingOutAfter(time.Second, nil)).ID
			c.since(t, f, x)
			want := c.state
			if want == "" {
				want = f.Stored(t, x).State
			}
			f.Advance(time.Minute)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			f.WantState(t, x, want)
			if got := f.Stored(t, x); got.RetryCount != 0 {
				t.Errorf("stored %+v, want no retry", got)
			}
		})
	}
}

// The rule for a timeout that the engine finds is that for one which a worker reports.
func TestTimeoutIsRetriedLikeAnyFailure(t *testing.T) {
	for _, c := range timingOut {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			for _, failure := range []engine.Failure{{Class: policy.TimedOut}, {Class: policy.Transient, Category: "timeout"}} {
				held := f.Start(t, fixture.TimingOutAfter(time.Minute, c.retry))
				f.SetExecution(t, held.ID, fmt.Sprintf("ffx_retry_count = %d", c.retries))
				failed := f.Fail(t, held.Lease, failure)
				want := c.state
				if want == fixture.StateExpired {
					want = fixture.StateFailed
				}
				if failed.Retry != (want != fixture.StateFailed) {
					t.Errorf("%+v: got %+v", failure, failed)
				}
				f.WantState(t, held.ID, want)
				f.Exec(t, "UPDATE ff_exec_core SET lane_id = 'done' WHERE lane_id = $1", f.Lane)
			}
		})
	}
}

// The timeout of an earlier lease is not that of the attempt which another program leased since: it is forgotten.
func TestExpireAttemptsIgnoresForeignLeases(t *testing.T) {
	f := fixture.NewCloned(t)
	for name, set := range map[string]func(x id.ExecutionID){
		"leased by another program": func(x id.ExecutionID) { f.SetAttempt(t, x, 0, "lease_epoch = 2") },
		"superseded": func(x id.ExecutionID) {
			f.SeedAttempt(t, x, 1, nil)
			f.SetExecution(t, x, "attempt_index = 1")
		},
		"not active":    func(x id.ExecutionID) { f.SetExecution(t, x, "lifecycle_phase = 'suspended'") },
		"without lease": func(x id.ExecutionID) { f.SetAttempt(t, x, 0, "lease_expires_at_ms = NULL") },
	} {
		c := f.Start(t, fixture.TimingOutAfter(time.Millisecond, nil))
		set(c.ID)
		timeoutAt := *f.StoredAttempts(t, c.ID)[0].TimeoutAtMs
		f.SetAttempt(t, c.ID, 0, "ffx_timeout_at_ms = NULL")
		forgotten := f.Dump(t, c.ID)
		f.SetAttempt(t, c.ID, 0, fmt.Sprintf("ffx_timeout_at_ms = %d", timeoutAt))
		f.Advance(time.Second)
		t.Log(name)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
		f.WantUnchanged(t, c.ID, forgotten)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 0)
	}
}

func TestExpireAttemptsWithTheLongestTimeout(t *testing.T) {
	f := fixture.NewCloned(t)
	f.SetExecution(t, f.Create(t), `policy = '{"timeout_policy":{"attempt_timeout_ms":9223372036854775807}}'`)
	c := f.ClaimOne(t)
	if got := *f.StoredAttempts(t, c.ID)[0].TimeoutAtMs; got != 1<<63-1 {
		t.Errorf("times out at %d", got)
	}
	fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 0)
}
