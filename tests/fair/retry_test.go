package fair

import (
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// retried makes executions that are retried after a pause.
func retried(pause time.Duration) func(*engine.ExecutionSpec) {
	return func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: 1000, Backoff: policy.Fixed(pause)}}
	}
}

// fail fails executions, which are retried after a pause, and lets the pause pass.
func (l *lane) fail(t *testing.T, pause time.Duration, claimed ...engine.Claimed) {
	t.Helper()
	failures := make([]engine.AttemptFailure, len(claimed))
	for i, c := range claimed {
		failures[i] = engine.AttemptFailure{Lease: c.Lease, Failure: engine.Failure{Message: "busy"}}
	}
	outcomes, err := l.FailExecutions(t.Context(), failures)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if o.Err != nil || !o.Value.Retry {
			t.Fatal(o)
		}
	}
	if pause > 0 {
		l.Advance(pause)
		if n, err := upkeep.Of(l.Engine).PromoteDelayed(t.Context(), max(len(claimed), 1)); err != nil || n != len(claimed) {
			t.Fatal(n, err)
		}
	}
}

var pauses = []struct {
	name  string
	pause time.Duration
}{{"at once", 0}, {"after a pause", time.Minute}}

// A retry takes the next place of its tenant, behind what the tenant has waiting. So a tenant whose executions fail and are
// retried starts no more executions than another one. L12
func TestRetriesTakeTurns_L12(t *testing.T) {
	for _, c := range pauses {
		t.Run(c.name, func(t *testing.T) {
			l := newLane(fixture.NewCloned(t), "")
			l.add(t, l.Engine, 3, of("a"), retried(c.pause))
			l.add(t, l.Engine, 20, of("b"))
			var got []string
			for range 20 {
				first := l.take(t, 1)[0]
				got = append(got, l.tenantOf[first.ID])
				if l.tenantOf[first.ID] == "a" {
					l.fail(t, c.pause, first)
				}
			}
			if order := strings.Join(got, ""); order != strings.Repeat("ab", 10) {
				t.Errorf("claimed %s", order)
			}
			l.WantQueue(t, t, c.name)
		})
	}
}

// Executions of a tenant that had the lane for itself are retried in turn with the work of a newcomer: places from the time
// when the lane was empty count no longer, however many calls report the failures. L12
func TestRetriesOfABatchTakeTurns_L12(t *testing.T) {
	for _, c := range pauses {
		t.Run(c.name, func(t *testing.T) {
			l := newLane(fixture.NewCloned(t), "")
			l.add(t, l.Engine, 20, of("a"), retried(c.pause))
			claimed := l.take(t, 20)
			l.add(t, l.Engine, 20, of("b"))
			for _, x := range claimed {
				l.fail(t, 0, x)
			}
			for range claimed {
				l.Advance(c.pause)
				if _, err := upkeep.Of(l.Engine).PromoteDelayed(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
			if order := strings.Join(l.order(l.take(t, 40)), ""); order != strings.Repeat("ab", 20) {
				t.Errorf("claimed %s", order)
			}
		})
	}
}

// The same for creations, one at a time.
func TestCreationsOneByOneTakeTurns(t *testing.T) {
	l := newLane(fixture.NewCloned(t), "")
	l.add(t, l.Engine, 20, of("a"))
	l.take(t, 20)
	l.add(t, l.Engine, 20, of("b"))
	for range 20 {
		l.add(t, l.Engine, 1, of("a"))
	}
	got := strings.Join(l.order(l.take(t, 40)), "")
	for n := 0; n < len(got); n += 2 {
		if pair := got[n : n+2]; pair != "ab" && pair != "ba" {
			t.Fatalf("claimed %s", got)
		}
	}
}
