package upkeep

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// meanwhile runs a job, and something else at two points of it: before its statement begins, and when that has taken
// its snapshot and is about to lock. In the second case the row is judged under the lock.
func meanwhile(t *testing.T, statement string, test func(t *testing.T, f *fixture.Flows, during func(j func(*engine.Engine) fixture.Job, since func()) int)) {
	t.Helper()
	t.Run("before "+statement, func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		test(t, f, func(j func(*engine.Engine) fixture.Job, since func()) int {
			late := f.StoppedBefore(t, statement)
			wait := actAsync(t, j(late.Engine))
			late.AwaitStop(t)
			since()
			late.Resume()
			return wait()
		})
	})
	t.Run("within "+statement, func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		test(t, f, func(j func(*engine.Engine) fixture.Job, since func()) int {
			late, release := f.Holding(t, statement)
			wait := actAsync(t, j(late.Engine))
			late.AwaitBlocked(t, f.Fixture)
			since()
			release()
			return wait()
		})
	})
}

func actAsync(t *testing.T, j fixture.Job) func() int {
	t.Helper()
	return fixture.Async(t, func(ctx context.Context) int {
		n, err := j(ctx, 10)
		if err != nil {
			t.Error(err)
		}
		return n
	})
}

// An attempt that was found to take too long has changed hands before the job locks it: that timeout is over, each of
// these facts alone says so.
func TestTimeoutSkipsALeaseThatChangedHands(t *testing.T) {
	for name, since := range map[string]func(t *testing.T, f *fixture.Fixture, l engine.Lease){
		"released and claimed again": func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{l}); err != nil || outcomes[0] != nil {
				t.Fatal(outcomes, err)
			}
			if again := f.ClaimOne(t); again.ID != l.Execution || again.Lease.Attempt != l.Attempt {
				t.Fatalf("claimed %+v, want the attempt of %+v", again, l)
			}
		},
		"taken over by another program": func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SetAttempt(t, l.Execution, 0, "lease_epoch = 2, worker_instance_id = 'another'")
		},
		"reclaimed by another program as a further attempt": func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SeedAttempt(t, l.Execution, 1, fixture.Columns{"lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
			f.SetExecution(t, l.Execution, "attempt_index = 1")
		},
		"suspended by another program": func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SetExecution(t, l.Execution, "lifecycle_phase = 'suspended'")
		},
		"revoked by another program": func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SetAttempt(t, l.Execution, 0, "lease_expires_at_ms = NULL")
		},
	} {
		t.Run(name, func(t *testing.T) {
			meanwhile(t, "TakeTimedOut", func(t *testing.T, f *fixture.Flows, during func(func(*engine.Engine) fixture.Job, func()) int) {
				l := f.Start(t, fixture.TimingOutAfter(time.Second, &policy.Retry{Backoff: policy.Fixed(0)})).Lease
				f.Advance(time.Second)
				var was string
				n := during(func(e *engine.Engine) fixture.Job { return upkeep.Of(e).ExpireAttempts }, func() {
					since(t, f.Fixture, l)
					was = f.Dump(t, l.Execution)
				})
				if n != 0 {
					t.Errorf("the job acted on %d rows", n)
				}
				f.WantUnchanged(t, l.Execution, was)
			})
		})
	}
}

// A timeout that was found left over is not forgotten when the attempt has been leased again before the job locks it.
func TestLeftoverTimeoutKeepsANewLease(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Start(t, fixture.TimingOutAfter(time.Second, nil)).ID
	f.Advance(time.Second)
	f.SetExecution(t, x, `lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'eligible_now',
		public_state = 'waiting', attempt_state = 'attempt_interrupted'`)
	f.SetAttempt(t, x, 0, "lease_expires_at_ms = NULL, lease_epoch = 2")
	late := f.StoppedBefore(t, "ForgetTimeouts")
	wait := actAsync(t, upkeep.Of(late.Engine).ExpireAttempts)
	late.AwaitStop(t)
	if c := f.ClaimOne(t); c.ID != x || c.Lease.Attempt != 0 {
		t.Fatalf("claimed %+v, want the first attempt of %s", c, x)
	}
	was := f.Dump(t, x)
	late.Resume()
	if n := wait(); n != 0 {
		t.Errorf("the job acted on %d rows", n)
	}
	f.WantUnchanged(t, x, was)
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
}

// A lease that ran out has a holder again before the job locks it, given by any program.
func TestExpirySkipsALeaseTakenByAnotherProgram(t *testing.T) {
	meanwhile(t, "TakeExpiredLeases", func(t *testing.T, f *fixture.Flows, during func(func(*engine.Engine) fixture.Job, func()) int) {
		l := f.Start(t).Lease
		f.Advance(fixture.LeaseTTL)
		var was string
		n := during(func(e *engine.Engine) fixture.Job { return upkeep.Of(e).ExpireLeases }, func() {
			f.SetAttempt(t, l.Execution, 0, fmt.Sprintf("lease_epoch = 2, worker_instance_id = 'another', lease_expires_at_ms = %d",
				fixture.Start.Add(time.Hour).UnixMilli()))
			was = f.Dump(t, l.Execution)
		})
		if n != 0 {
			t.Errorf("the job acted on %d rows", n)
		}
		f.WantUnchanged(t, l.Execution, was)
	})
}

// Another program keeps the wake-up of a delay only in deadline_at_ms. A wake-up that it moved is not promoted
// before.
func TestPromotionSkipsAMovedDelay(t *testing.T) {
	const moved = 2 * time.Second
	promote := func(e *engine.Engine) fixture.Job { return upkeep.Of(e).PromoteDelayed }
	move := func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
		f.SetExecution(t, x, fmt.Sprintf("deadline_at_ms = %d", fixture.Start.Add(moved).UnixMilli()))
	}
	delayed := func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
		return f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Second) })
	}
	t.Run("before the job", func(t *testing.T) {
		f := fixture.NewCloned(t)
		x := delayed(t, f)
		move(t, f, x)
		was := f.Dump(t, x)
		f.Advance(moved - time.Millisecond)
		fixture.Run(t, promote(f.Engine), 0)
		f.WantUnchanged(t, x, was)
		f.Advance(time.Millisecond)
		fixture.Run(t, promote(f.Engine), 1)
		f.WantState(t, x, fixture.StateReady)
	})
	meanwhile(t, "PromoteDelayed", func(t *testing.T, f *fixture.Flows, during func(func(*engine.Engine) fixture.Job, func()) int) {
		x := delayed(t, f.Fixture)
		f.Advance(time.Second)
		var was string
		n := during(promote, func() {
			move(t, f.Fixture, x)
			was = f.Dump(t, x)
		})
		if n != 0 {
			t.Errorf("the job acted on %d rows", n)
		}
		f.WantUnchanged(t, x, was)
		f.Advance(moved - time.Second)
		fixture.Run(t, promote(f.Engine), 1)
		f.WantState(t, x, fixture.StateReady)
	})
}

// Another program's change of an execution that was found overdue decides, under the lock: it keeps the wake-up of a
// delay where it keeps deadlines, and does not clear the deadline of executions it ends.
func TestDeadlineRespectsAnotherProgramsChange(t *testing.T) {
	for name, since := range map[string]string{
		"delayed":   "eligibility_state = 'not_eligible_until_time', blocking_reason = 'waiting_for_delay'",
		"cancelled": "lifecycle_phase = 'cancelled', eligibility_state = 'not_applicable', public_state = 'cancelled'",
	} {
		t.Run(name, func(t *testing.T) {
			meanwhile(t, "TakeOverdue", func(t *testing.T, f *fixture.Flows, during func(func(*engine.Engine) fixture.Job, func()) int) {
				x := f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "deadline_at_ms": fixture.Start.UnixMilli()})
				var was string
				n := during(func(e *engine.Engine) fixture.Job { return upkeep.Of(e).ExpireDeadlines }, func() {
					f.SetExecution(t, x, since)
					was = f.Dump(t, x)
				})
				if n != 0 {
					t.Errorf("the job acted on %d rows", n)
				}
				f.WantUnchanged(t, x, was)
			})
		})
	}
	t.Run("replayed", func(t *testing.T) {
		f := fixture.NewCloned(t)
		x := f.Seed(t, fixture.Columns{"lifecycle_phase": "cancelled", "deadline_at_ms": fixture.Start.UnixMilli()})
		late := f.StoppedBefore(t, "SettleDeadlines")
		wait := actAsync(t, upkeep.Of(late.Engine).ExpireDeadlines)
		late.AwaitStop(t)
		f.SetExecution(t, x, "lifecycle_phase = 'runnable'")
		was := f.Dump(t, x)
		late.Resume()
		if n := wait(); n != 0 {
			t.Errorf("the job acted on %d rows", n)
		}
		f.WantUnchanged(t, x, was)
	})
}

// The deadline's job asks for attempts without waiting, too.
func TestExpireDeadlinesNeverWaitsForAttempts(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) })
	f.Advance(time.Second)
	tx := f.BeginTx(t)
	fixture.LockAttempt(t, tx, c.ID, 0)
	log := new(fixture.StatementLog)
	late := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	fixture.Run(t, upkeep.Of(late).ExpireDeadlines, 0)
	if aborted := log.Aborted(); len(aborted) > 0 {
		t.Errorf("the server gave up %q", aborted)
	}
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(late).ExpireDeadlines, 1)
}

// An execution that joined a flow after the forecast said that its end needs no lock is not ended without that lock:
// it waits for the next call, which resolves its dependents.
func TestJobSkipsAnExecutionThatJoinedAFlow(t *testing.T) {
	statements := map[string]string{
		"deadline": "TakeOverdue", "attempt timeout": "TakeTimedOut", "lease lost too often": "TakeExpiredLeases",
	}
	for _, j := range ending {
		t.Run(j.name, func(t *testing.T) {
			meanwhile(t, statements[j.name], func(t *testing.T, f *fixture.Flows, during func(func(*engine.Engine) fixture.Job, func()) int) {
				spec := fixture.Chart(nil, "a>b")
				spec.Nodes[0].Spec = j.spec
				flow := f.NewFlowOf(t, spec)
				a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
				f.SetExecution(t, a, "flow_id = NULL")
				if j.started {
					f.ClaimAll(t)
				}
				f.Advance(time.Hour)
				var was string
				n := during(j.job, func() {
					f.Exec(t, "UPDATE ff_exec_core SET flow_id = $3 WHERE partition_key = $1 AND execution_id = $2", a.Partition(), a.UUID(), flow)
					was = f.DumpFlow(t, flow)
				})
				if n != 0 {
					t.Errorf("the job acted on %d rows", n)
				}
				if is := f.DumpFlow(t, flow); is != was {
					t.Errorf("the flow changed from\n%s\nto\n%s", was, is)
				}
				fixture.Run(t, j.job(f.Engine), 1)
				f.WantState(t, a, j.state)
				f.WantState(t, b, fixture.StateSkipped)
			})
		})
	}
}
