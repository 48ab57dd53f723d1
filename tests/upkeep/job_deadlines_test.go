package upkeep

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// In the reference a deadline ends only running executions, and no loop checks it.
func TestDeadlineEndsEveryPhase_E15_E16(t *testing.T) {
	deadline := func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Minute) }
	for _, c := range []struct {
		name    string
		arrange func(f *fixture.Fixture, t *testing.T) id.ExecutionID
		state   string
		outcome string // of the attempt; "-" for no attempt
		epoch   int64
		events  []string
	}{
		{
			"waiting", func(f *fixture.Fixture, t *testing.T) id.ExecutionID { return f.Create(t, deadline) },
			fixture.StateUnstarted, "-", 0,
			[]string{"completion expired"},
		},
		{"delayed", func(f *fixture.Fixture, t *testing.T) id.ExecutionID {
			return f.Create(t, deadline, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Hour) })
		}, fixture.StateUnstarted, "-", 0, []string{"completion expired"}},
		{"blocked", func(f *fixture.Fixture, t *testing.T) id.ExecutionID {
			x := f.Create(t, deadline)
			f.Attach(t, x, []id.BudgetID{id.NewBudgetID()}, nil)
			return x
		}, fixture.StateUnstarted, "-", 0, []string{"completion expired"}},
		{
			"running", func(f *fixture.Fixture, t *testing.T) id.ExecutionID { return f.Start(t, deadline).ID },
			fixture.StateExpired, "expired", 2,
			[]string{"lease acquired", "lease expired", "completion expired"},
		},
		{"interrupted", func(f *fixture.Fixture, t *testing.T) id.ExecutionID {
			c := f.Start(t, deadline)
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
				t.Fatal(err)
			}
			return c.ID
		}, fixture.StateExpired, "expired", 2, []string{"lease acquired", "lease revoked backend", "completion expired"}},
		{"suspended", func(f *fixture.Fixture, t *testing.T) id.ExecutionID {
			x := f.Start(t, deadline).ID
			f.SetExecution(t, x, "lifecycle_phase = 'suspended', ownership_state = 'unowned', attempt_state = 'attempt_interrupted'")
			f.SetAttempt(t, x, 0, "outcome = 'attempt_interrupted', lease_expires_at_ms = NULL")
			f.Insert(t, "ff_suspension_current", fixture.Columns{
				"partition_key": x.Partition(), "execution_id": x.UUID(),
				"suspension_id": id.NewSuspensionID(), "suspended_at_ms": 1, "condition": "{}",
			}, nil)
			return x
		}, fixture.StateExpired, "expired", 2, []string{"lease acquired", "completion expired"}},
		{"between two attempts", func(f *fixture.Fixture, t *testing.T) id.ExecutionID {
			c := f.Start(t, deadline)
			f.Fail(t, c.Lease, engine.Failure{})
			return c.ID
		}, fixture.StateExpired, "retry", 1, []string{"lease acquired", "lease revoked backend", "completion expired"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := c.arrange(f, t)
			f.SeedGrant(t, x)
			f.Advance(time.Minute - time.Millisecond)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 0)
			f.Advance(time.Millisecond)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 0)
			stored := f.Stored(t, x)
			if stored.State != c.state || *stored.TerminalAtMs != f.Time().UnixMilli() || stored.LeaseEpoch != c.epoch ||
				stored.Raw(t, "last_failure_message") != "execution_deadline" || stored.GateID != nil {
				t.Errorf("stored %+v", stored)
			}
			outcome := "-"
			for _, a := range f.StoredAttempts(t, x) {
				outcome = a.Outcome
				if a.LeaseExpiresAtMs != nil || a.TerminalAtMs == nil || a.LeaseEpoch != c.epoch {
					t.Errorf("attempt %+v", a)
				}
			}
			if outcome != c.outcome {
				t.Errorf("attempt outcome %q, want %q", outcome, c.outcome)
			}
			f.WantEvents(t, x, c.events...)
			if f.CountGrants(t, x) != 0 || len(fixture.Texts(t, f.Pool, "SELECT suspension_id::text FROM ff_suspension_current")) != 0 {
				t.Error("what could still act on it was left")
			}
			if got := f.Describe(t, x); got.State.Outcome != state.OutcomeExpired || got.State.Public != state.PublicExpired {
				t.Errorf("described as %+v", got.State)
			}
		})
	}
}

func TestExpireDeadlinesSkipsEndedExecutions(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Minute) })
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	before := f.Dump(t, c.ID)
	f.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 0)
	f.WantUnchanged(t, c.ID, before)
}

// Deadlines that other programs wrote: one column holds them and the wake-ups. The deadline of an execution that they
// ended is returned once more and then negated.
func TestExpireDeadlinesOfOtherPrograms(t *testing.T) {
	f := fixture.NewCloned(t)
	due := fixture.Columns{"deadline_at_ms": fixture.Start.UnixMilli()}
	terminal := fixture.Columns{"lifecycle_phase": "terminal", "public_state": "completed"}
	delayed := fixture.Columns{"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed"}
	ours := fixture.Columns{"ffx_execution_deadline_ms": fixture.Start.UnixMilli()}
	const (
		left = iota
		ended
		settled
	)
	for _, c := range []struct {
		name string
		row  fixture.Columns
		want int
	}{
		{"running", fixture.Merged(fixture.ClaimedByReference, due), ended},
		{"not due", fixture.Merged(fixture.ClaimedByReference, fixture.Columns{"deadline_at_ms": fixture.Start.UnixMilli() + 1}), left},
		{"without one of ours", fixture.Merged(fixture.ClaimedByReference, due, fixture.Columns{"ffx_execution_deadline_ms": 0}), left},
		{"delayed: a wake-up", fixture.Merged(delayed, due), left},
		{"retry whose wake-up is elsewhere", fixture.Merged(delayed, due, fixture.Columns{
			"blocking_reason": "waiting_for_retry_backoff", "raw_fields": `{"delay_until":1}`,
		}), ended},
		{"ended", fixture.Merged(due, terminal), settled},
		{"ended, with one of ours", fixture.Merged(due, terminal, ours), settled},
		{"cancelled", fixture.Merged(due, terminal, fixture.Columns{"lifecycle_phase": "cancelled", "public_state": "cancelled"}), settled},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := f.Seed(t, c.row)
			before, deadline := f.Dump(t, x), f.Describe(t, x).Deadline
			n, err := upkeep.Of(f.Engine).ExpireDeadlines(t.Context(), 10)
			if want := min(c.want, 1); err != nil || n != want {
				t.Errorf("acted on %d, %v; want %d", n, err, want)
			}
			switch c.want {
			case left:
				f.WantUnchanged(t, x, before)
			case ended:
				f.WantState(t, x, fixture.StateUnstarted)
				// The row has the other program's deadline only, which the next look puts away.
				fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
			case settled:
				if got := f.Stored(t, x).LastDeadline; got == nil || *got != -fixture.Start.UnixMilli() {
					t.Errorf("stored deadline %v, want it negated", got)
				}
				f.SetExecution(t, x, fmt.Sprintf("ffx_execution_deadline_ms = %v", cmp.Or(c.row["ffx_execution_deadline_ms"], any("NULL"))))
				f.WantUnchanged(t, x, before)
				f.SetExecution(t, x, fmt.Sprintf("ffx_execution_deadline_ms = %d", -fixture.Start.UnixMilli()))
			}
			fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 0)
			if got := f.Describe(t, x).Deadline; !got.Equal(deadline) {
				t.Errorf("described with the deadline %v, want %v", got, deadline)
			}
		})
	}
}
