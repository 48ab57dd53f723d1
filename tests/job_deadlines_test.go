package tests

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// In the reference a deadline ends only what runs, and no loop asks.
func TestE15_E16_deadline_ends_every_phase(t *testing.T) {
	deadline := func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Minute) }
	for _, c := range []struct {
		name    string
		arrange func(f *fixture, t *testing.T) id.ExecutionID
		state   string
		outcome string // of the attempt; "-" for no attempt
		epoch   int64
		events  []string
	}{
		{
			"waiting", func(f *fixture, t *testing.T) id.ExecutionID { return f.create(t, deadline) },
			stateUnstarted, "-", 0,
			[]string{"completion expired"},
		},
		{"delayed", func(f *fixture, t *testing.T) id.ExecutionID {
			return f.create(t, deadline, func(spec *engine.ExecutionSpec) { spec.DelayUntil = start.Add(time.Hour) })
		}, stateUnstarted, "-", 0, []string{"completion expired"}},
		{"blocked", func(f *fixture, t *testing.T) id.ExecutionID {
			x := f.create(t, deadline)
			f.attach(t, x, []id.BudgetID{id.NewBudgetID()}, nil)
			return x
		}, stateUnstarted, "-", 0, []string{"completion expired"}},
		{
			"running", func(f *fixture, t *testing.T) id.ExecutionID { return f.start(t, deadline).ID },
			stateExpired, "expired", 2,
			[]string{"lease acquired", "lease expired", "completion expired"},
		},
		{"interrupted", func(f *fixture, t *testing.T) id.ExecutionID {
			c := f.start(t, deadline)
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
				t.Fatal(err)
			}
			return c.ID
		}, stateExpired, "expired", 2, []string{"lease acquired", "lease revoked backend", "completion expired"}},
		{"suspended", func(f *fixture, t *testing.T) id.ExecutionID {
			x := f.start(t, deadline).ID
			f.setExecution(t, x, "lifecycle_phase = 'suspended', ownership_state = 'unowned', attempt_state = 'attempt_interrupted'")
			f.setAttempt(t, x, 0, "outcome = 'attempt_interrupted', lease_expires_at_ms = NULL")
			f.insert(t, "ff_suspension_current", columns{
				"partition_key": x.Partition(), "execution_id": x.UUID(),
				"suspension_id": id.NewSuspensionID(), "suspended_at_ms": 1, "condition": "{}",
			}, nil)
			return x
		}, stateExpired, "expired", 2, []string{"lease acquired", "completion expired"}},
		{"between two attempts", func(f *fixture, t *testing.T) id.ExecutionID {
			c := f.start(t, deadline)
			f.fail(t, c.Lease, engine.Failure{})
			return c.ID
		}, stateExpired, "retry", 1, []string{"lease acquired", "lease revoked backend", "completion expired"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := c.arrange(f, t)
			f.seedGrant(t, x)
			f.advance(time.Minute - time.Millisecond)
			run(t, f.Maintenance().ExpireDeadlines, 0)
			f.advance(time.Millisecond)
			run(t, f.Maintenance().ExpireDeadlines, 1)
			run(t, f.Maintenance().ExpireDeadlines, 0)
			stored := f.stored(t, x)
			if stored.State != c.state || *stored.TerminalAtMs != f.now().UnixMilli() || stored.LeaseEpoch != c.epoch ||
				stored.raw(t, "last_failure_message") != "execution_deadline" || stored.GateID != nil {
				t.Errorf("stored %+v", stored)
			}
			outcome := "-"
			for _, a := range f.attempts(t, x) {
				outcome = a.Outcome
				if a.LeaseExpiresAtMs != nil || a.TerminalAtMs == nil || a.LeaseEpoch != c.epoch {
					t.Errorf("attempt %+v", a)
				}
			}
			if outcome != c.outcome {
				t.Errorf("attempt outcome %q, want %q", outcome, c.outcome)
			}
			f.wantEvents(t, x, c.events...)
			if f.grants(t, x) != 0 || len(texts(t, f.pool, "SELECT suspension_id::text FROM ff_suspension_current")) != 0 {
				t.Error("what could still act on it was left")
			}
			if got := f.describe(t, x); got.State.Outcome != state.OutcomeExpired || got.State.Public != state.PublicExpired {
				t.Errorf("described as %+v", got.State)
			}
		})
	}
}

func TestExpireDeadlines_leaves_what_has_ended(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t, func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Minute) })
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	before := f.dump(t, c.ID)
	f.advance(time.Hour)
	run(t, f.Maintenance().ExpireDeadlines, 0)
	f.wantUnchanged(t, c.ID, before)
}

// Deadlines that other programs wrote: one column holds them and the wake-ups. Of what they ended, the deadline is
// looked at once more and then put away.
func TestExpireDeadlines_of_other_programs(t *testing.T) {
	f := cloneFixture(t)
	due := columns{"deadline_at_ms": start.UnixMilli()}
	terminal := columns{"lifecycle_phase": "terminal", "public_state": "completed"}
	delayed := columns{"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed"}
	ours := columns{"ffx_execution_deadline_ms": start.UnixMilli()}
	const (
		left = iota
		ended
		settled
	)
	for _, c := range []struct {
		name string
		row  columns
		want int
	}{
		{"running", merged(claimedByReference, due), ended},
		{"not due", merged(claimedByReference, columns{"deadline_at_ms": start.UnixMilli() + 1}), left},
		{"without one of ours", merged(claimedByReference, due, columns{"ffx_execution_deadline_ms": 0}), left},
		{"delayed: a wake-up", merged(delayed, due), left},
		{"retry whose wake-up is elsewhere", merged(delayed, due, columns{
			"blocking_reason": "waiting_for_retry_backoff", "raw_fields": `{"delay_until":1}`,
		}), ended},
		{"ended", merged(due, terminal), settled},
		{"ended, with one of ours", merged(due, terminal, ours), settled},
		{"cancelled", merged(due, terminal, columns{"lifecycle_phase": "cancelled", "public_state": "cancelled"}), settled},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := f.seed(t, c.row)
			before, deadline := f.dump(t, x), f.describe(t, x).Deadline
			n, err := f.Maintenance().ExpireDeadlines(t.Context(), 10)
			if want := min(c.want, 1); err != nil || n != want {
				t.Errorf("acted on %d, %v; want %d", n, err, want)
			}
			switch c.want {
			case left:
				f.wantUnchanged(t, x, before)
			case ended:
				f.wantState(t, x, stateUnstarted)
				// The row has the other program's deadline only, which the next look puts away.
				run(t, f.Maintenance().ExpireDeadlines, 1)
			case settled:
				if got := f.stored(t, x).LastDeadline; got == nil || *got != -start.UnixMilli() {
					t.Errorf("stored deadline %v, want it negated", got)
				}
				f.setExecution(t, x, fmt.Sprintf("ffx_execution_deadline_ms = %v", cmp.Or(c.row["ffx_execution_deadline_ms"], any("NULL"))))
				f.wantUnchanged(t, x, before)
				f.setExecution(t, x, fmt.Sprintf("ffx_execution_deadline_ms = %d", -start.UnixMilli()))
			}
			run(t, f.Maintenance().ExpireDeadlines, 0)
			if got := f.describe(t, x).Deadline; !got.Equal(deadline) {
				t.Errorf("described with the deadline %v, want %v", got, deadline)
			}
		})
	}
}
