package leases

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// documentedPauses reads the pauses before the default retries from the documentation.
func documentedPauses(t *testing.T) []time.Duration {
	t.Helper()
	page, err := os.ReadFile("../../docs/executions-and-attempts.md")
	if err != nil {
		t.Fatal(err)
	}
	var pauses []time.Duration
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+)(?: to (\d+))? \| (\d+[smh]) \|$`).FindAllStringSubmatch(string(page), -1) {
		first, last := row[1], row[2]
		if last == "" {
			last = first
		}
		pause, err := time.ParseDuration(row[3])
		if err != nil {
			t.Fatal(err)
		}
		if first != strconv.Itoa(len(pauses)+1) {
			t.Fatalf("the table goes on with %q after %d retries", row[0], len(pauses))
		}
		for to, _ := strconv.Atoi(last); len(pauses) < to; {
			pauses = append(pauses, pause)
		}
	}
	if len(pauses) != 24 {
		t.Fatalf("the documentation has %d retries, want 24", len(pauses))
	}
	return pauses
}

// Three retries at once are over before anything that is down has come back.
func TestFailuresWithoutARetryPolicyAreRetriedPatiently(t *testing.T) {
	pauses := documentedPauses(t)
	f := fixture.NewCloned(t)
	for _, way := range []struct {
		name   string
		create func(t *testing.T)
	}{
		{"without a policy", func(t *testing.T) { f.Create(t) }},
		{"with a policy that says nothing of retries", func(t *testing.T) {
			f.Create(t, func(s *engine.ExecutionSpec) { s.Policy = &policy.Execution{AttemptTimeout: time.Hour} })
		}},
		{"of another program", func(t *testing.T) {
			f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt"})
		}},
	} {
		way.create(t)
		began := f.Time()
		for n, pause := range pauses {
			c := f.ClaimOne(t)
			if c.Lease.Attempt != n {
				t.Fatalf("%s: attempt %d, want %d", way.name, c.Lease.Attempt, n)
			}
			failed, err := f.FailExecution(t.Context(), c.Lease, engine.Failure{})
			if err != nil || !failed.Retry || failed.RetryAt.Sub(f.Time()) != pause {
				t.Fatalf("%s: retry %d is %+v after %v, %v; want it after %v", way.name, n+1, failed, failed.RetryAt.Sub(f.Time()), err, pause)
			}
			f.Advance(pause - time.Millisecond)
			if done, err := upkeep.Of(f.Engine).PromoteDelayed(t.Context(), 10); done != 0 || err != nil {
				t.Errorf("%s: retry %d comes early: %d, %v", way.name, n+1, done, err)
			}
			f.Advance(time.Millisecond)
			if done, err := upkeep.Of(f.Engine).PromoteDelayed(t.Context(), 10); done != 1 || err != nil {
				t.Fatalf("%s: retry %d does not come: %d, %v", way.name, n+1, done, err)
			}
		}
		if failed, err := f.FailExecution(t.Context(), f.ClaimOne(t).Lease, engine.Failure{}); err != nil || failed.Retry {
			t.Errorf("%s: the last failure is %+v, %v; want the end", way.name, failed, err)
		}
		if took := f.Time().Sub(began); took < 18*time.Hour || took > 24*time.Hour {
			t.Errorf("%s: tried for %v, want about a day", way.name, took)
		}
	}
}

func TestImmediateRetriesAreClaimableAtOnce(t *testing.T) {
	f := fixture.New(t)
	f.Create(t, func(s *engine.ExecutionSpec) { s.Policy = &policy.Execution{Retry: policy.ImmediateRetries(2)} })
	for range 2 {
		if failed, err := f.FailExecution(t.Context(), f.ClaimOne(t).Lease, engine.Failure{}); err != nil || !failed.Retry {
			t.Fatalf("got %+v, %v; want a retry", failed, err)
		}
	}
	if failed, err := f.FailExecution(t.Context(), f.ClaimOne(t).Lease, engine.Failure{}); err != nil || failed.Retry {
		t.Errorf("got %+v, %v; want the end", failed, err)
	}
}
