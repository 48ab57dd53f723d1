package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// background runs the jobs that change executions until nothing is due.
func background(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	for _, j := range []fixture.Job{upkeep.Of(f.Engine).PromoteDelayed, upkeep.Of(f.Engine).ExpireAttempts, upkeep.Of(f.Engine).ExpireDeadlines, upkeep.Of(f.Engine).ExpireLeases} {
		for n := 1; n > 0; {
			var err error
			if n, err = j(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const foreignBlock = `eligibility_state = 'blocked_by_operator', public_state = 'rate_limited', blocking_reason = 'paused_by_operator'`

// After every write by any program, the queue has the claimable executions.
func TestQueueFollowsEveryWrite(t *testing.T) {
	shared := fixture.GrantFixture(t)
	pause := fixture.Retrying(policy.Retry{Backoff: policy.Fixed(time.Second)})
	timeout := func(retries int) func(*engine.ExecutionSpec) {
		return func(spec *engine.ExecutionSpec) {
			spec.Policy = &policy.Execution{
				AttemptTimeout: time.Second,
				Retry:          &policy.Retry{MaxRetries: retries, Backoff: policy.Fixed(0)},
			}
		}
	}
	delayed := func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Second) }
	written := func(assignments ...string) func(*testing.T, *fixture.Flows) {
		return func(t *testing.T, f *fixture.Flows) {
			x := f.Create(t)
			for _, a := range assignments {
				f.SetExecution(t, x, a)
			}
		}
	}
	created := func(ends string) func(*testing.T, *fixture.Flows) {
		return func(t *testing.T, f *fixture.Flows) {
			tx := f.BeginTx(t)
			if _, err := f.WithTx(tx).CreateExecutions(t.Context(), []engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}, {Kind: "test", Lane: f.Lane}}); err != nil {
				t.Fatal(err)
			}
			fixture.ExecIn(t, tx, ends)
		}
	}
	for _, c := range []struct {
		name   string
		do     func(t *testing.T, f *fixture.Flows)
		queued int
	}{
		{"create", func(t *testing.T, f *fixture.Flows) { f.Create(t) }, 1},
		{"create many", func(t *testing.T, f *fixture.Flows) {
			if _, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}}, 5)); err != nil {
				t.Fatal(err)
			}
		}, 5},
		{"create a second time", func(t *testing.T, f *fixture.Flows) {
			for range 2 {
				if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, IdempotencyKey: f.Key("key")}); err != nil {
					t.Fatal(err)
				}
			}
		}, 1},
		{"create in a transaction that commits", created("COMMIT"), 2},
		{"create in a transaction that rolls back", created("ROLLBACK"), 0},
		{"create with a delay", func(t *testing.T, f *fixture.Flows) { f.Create(t, delayed) }, 0},
		{"promote", func(t *testing.T, f *fixture.Flows) {
			f.Create(t, delayed)
			f.Advance(time.Second)
			background(t, f.Fixture)
		}, 1},
		{"stop at a gate", func(t *testing.T, f *fixture.Flows) { f.Attach(t, f.Create(t), []id.BudgetID{id.NewBudgetID()}, nil) }, 0},
		{"create a flow", func(t *testing.T, f *fixture.Flows) { f.Draw(t, nil, "a>c", "b>c") }, 2},
		{"release a member", func(t *testing.T, f *fixture.Flows) { f.Succeed(t, f.Draw(t, nil, "a>c", "b>c", "c>d"), "a", "b") }, 1},
		{"skip a member", func(t *testing.T, f *fixture.Flows) { f.Fail(t, f.Draw(t, nil, "a>c", "b>c"), "a") }, 0},
		{"claim some", func(t *testing.T, f *fixture.Flows) {
			f.Create(t)
			f.Create(t)
			f.Create(t)
			f.ClaimN(t, 2)
		}, 1},
		{"claim after positions", func(t *testing.T, f *fixture.Flows) {
			claimer := f.Claimer(t)
			for range 4 {
				f.Create(t)
			}
			for range 3 {
				if claimed, err := claimer.Claim(t.Context(), 1); err != nil || len(claimed) != 1 {
					t.Fatal(claimed, err)
				}
			}
		}, 1},
		{"claim what the fast path does not serve", func(t *testing.T, f *fixture.Flows) {
			f.SeedAttempt(t, f.Create(t), 0, nil)
			f.Create(t)
			f.ClaimN(t, 2)
		}, 0},
		{"complete", func(t *testing.T, f *fixture.Flows) {
			if err := f.CompleteExecution(t.Context(), f.Start(t).Lease, nil); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"fail, to be retried at once", failAndRetry, 1},
		{"fail, to be retried later", func(t *testing.T, f *fixture.Flows) { f.Fixture.Fail(t, f.Start(t, pause).Lease, engine.Failure{}) }, 0},
		{"fail for good", func(t *testing.T, f *fixture.Flows) { f.Fixture.Fail(t, f.Start(t).Lease, fixture.ForGood) }, 0},
		{"release and lease again", func(t *testing.T, f *fixture.Flows) {
			held := f.StartMany(t, 2)
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{held[0].Lease, held[1].Lease}); err != nil {
				t.Fatal(err)
			}
			f.WantQueue(t, t, "released")
			if c := f.ClaimOne(t); !c.Resumed {
				t.Errorf("claimed %+v, want it resumed", c)
			}
		}, 1},
		{"expire a lease", func(t *testing.T, f *fixture.Flows) {
			f.Start(t)
			f.Advance(fixture.LeaseTTL)
			background(t, f.Fixture)
		}, 1},
		{"attempt timeout, with a retry", func(t *testing.T, f *fixture.Flows) {
			f.Start(t, timeout(1))
			f.Advance(time.Second)
			background(t, f.Fixture)
		}, 1},
		{"attempt timeout for good", func(t *testing.T, f *fixture.Flows) {
			f.Start(t, timeout(policy.NoRetries))
			f.Advance(time.Second)
			background(t, f.Fixture)
		}, 0},
		{"deadline of waiting work", func(t *testing.T, f *fixture.Flows) {
			f.Create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) })
			f.Advance(time.Second)
			background(t, f.Fixture)
		}, 0},
		{"another's creation", func(t *testing.T, f *fixture.Flows) { f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable"}) }, 1},
		{"another's creation, not runnable yet", func(t *testing.T, f *fixture.Flows) { f.Seed(t, nil) }, 0},
		{"another's claim, which raises no epoch", written(fixture.ForeignClaim), 0},
		{"another's claim after one of ours", written(fixture.ForeignReady+", ffx_lease_epoch = 4", fixture.ForeignClaim), 0},
		{"cancel", func(t *testing.T, f *fixture.Flows) {
			f.Create(t)
			x := f.Create(t)
			f.Advance(time.Second)
			f.Cancel(t, x)
		}, 1},
		{"cancel what has another priority and lane by now", func(t *testing.T, f *fixture.Flows) {
			x := f.Create(t)
			f.SetExecution(t, x, "priority = 3, lane_id = lane_id || '-other'")
			f.Advance(time.Second)
			f.Cancel(t, x)
		}, 0},
		{"cancel a flow", func(t *testing.T, f *fixture.Flows) {
			flow := f.Draw(t, nil, "a>d", "b>d", "c>d")
			f.ClaimN(t, 1)
			f.Advance(time.Second)
			f.CancelBy(t, flow, state.CancelAll)
		}, 0},
		{"cancel a member that waits for others", func(t *testing.T, f *fixture.Flows) {
			flow := f.Draw(t, nil, "a>c", "b>c")
			f.Cancel(t, f.NodeID(flow, "c"))
		}, 2},
		{"cancel what is delayed", func(t *testing.T, f *fixture.Flows) { f.Cancel(t, f.Create(t, delayed)) }, 0},
		{"cancel what is leased", func(t *testing.T, f *fixture.Flows) { f.Cancel(t, f.Start(t).ID) }, 0},
		{"deadline of what is delayed, and of a member that waits", func(t *testing.T, f *fixture.Flows) {
			overdue := func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) }
			f.Create(t, overdue, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Minute) })
			spec := fixture.Chart(nil, "a>c")
			overdue(&spec.Nodes[1].Spec)
			f.NewFlowOf(t, spec)
			f.Advance(time.Second)
			background(t, f.Fixture)
		}, 1},
		{"block", func(t *testing.T, f *fixture.Flows) { blockEach(t, f.Fixture) }, 0},
		{"block and unblock", func(t *testing.T, f *fixture.Flows) {
			for reason, x := range blockEach(t, f.Fixture) {
				f.Unblock(t, x, reason)
			}
		}, 3},
		// Within the same millisecond a trigger would do it.
		{"cancel what is blocked", func(t *testing.T, f *fixture.Flows) {
			blocked := blockEach(t, f.Fixture)
			f.Advance(time.Second)
			for _, x := range blocked {
				f.Cancel(t, x)
			}
		}, 0},
		{"cancel what is blocked, at once", func(t *testing.T, f *fixture.Flows) {
			for _, x := range blockEach(t, f.Fixture) {
				f.Cancel(t, x)
			}
		}, 0},
		{"cancel a flow whose members are blocked", func(t *testing.T, f *fixture.Flows) {
			flow := f.Draw(t, nil, "a>c", "b>c")
			f.Block(t, f.NodeID(flow, "a"), state.PausedByPolicy, "")
			f.Block(t, f.NodeID(flow, "b"), state.WaitingForCapableWorker, "")
			f.Advance(time.Second)
			f.CancelBy(t, flow, state.CancelAll)
		}, 0},
		{"cancel siblings that are blocked", func(t *testing.T, f *fixture.Flows) {
			flow := f.Draw(t, fixture.CancelRemaining("c", 1), "a>c", "b>c")
			f.Block(t, f.NodeID(flow, "b"), state.PausedByOperator, "")
			f.Succeed(t, flow, "a")
			f.Advance(time.Second)
			if n, err := upkeep.Of(f.Engine).CancelSiblings(t.Context(), 10); err != nil || n != 1 {
				t.Fatalf("%d, %v", n, err)
			}
		}, 1},
		{"deadline of what is blocked", func(t *testing.T, f *fixture.Flows) {
			blockEach(t, f.Fixture, func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) })
			f.Advance(time.Second)
			background(t, f.Fixture)
		}, 0},
		{"what is blocked moves to another lane", func(t *testing.T, f *fixture.Flows) {
			for _, x := range blockEach(t, f.Fixture) {
				f.SetExecution(t, x, "lane_id = lane_id || '-other', required_capabilities = '{gpu}'")
			}
		}, 0},
		{"what is blocked is blocked by another", func(t *testing.T, f *fixture.Flows) {
			f.SetExecution(t, blockEach(t, f.Fixture)[state.PausedByPolicy], foreignBlock)
		}, 0},
		{"another's cancel of what is blocked", func(t *testing.T, f *fixture.Flows) {
			for _, x := range blockEach(t, f.Fixture) {
				f.SetExecution(t, x, fixture.ForeignCancel)
			}
		}, 0},
		{"another's claim of what is blocked", func(t *testing.T, f *fixture.Flows) {
			for _, x := range blockEach(t, f.Fixture) {
				f.SetExecution(t, x, fixture.ForeignClaim)
			}
		}, 0},
		{"what is blocked is deleted", func(t *testing.T, f *fixture.Flows) {
			blockEach(t, f.Fixture)
			f.Exec(t, "DELETE FROM ff_exec_core WHERE lane_id = $1", f.Lane)
		}, 0},
		{"what has ended is deleted", func(t *testing.T, f *fixture.Flows) {
			f.SetExecution(t, f.Create(t), fixture.ForeignCancel)
			f.Create(t)
			f.Exec(t, "DELETE FROM ff_exec_core WHERE lane_id = $1 AND lifecycle_phase = 'cancelled'", f.Lane)
		}, 1},
		{"grant", func(t *testing.T, f *fixture.Flows) { f.Issue(t, f.Create(t)) }, 0},
		{"claim by a grant", func(t *testing.T, f *fixture.Flows) {
			if _, err := interop.ClaimExecution(t.Context(), f.Fixture.Engine, f.Using(f.Issue(t, f.Create(t)))); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"grant and claim at once", func(t *testing.T, f *fixture.Flows) {
			if _, err := interop.IssueGrantAndClaim(t.Context(), f.Fixture.Engine, f.Create(t), "", fixture.LeaseTTL); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"operator: priority, delay, promotion", func(t *testing.T, f *fixture.Flows) {
			x := f.Create(t)
			if err := operator.Prioritize(t.Context(), f.Fixture.Engine, x, 12); err != nil {
				t.Fatal(err)
			}
			if err := operator.Delay(t.Context(), f.Fixture.Engine, x, f.Time().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			f.WantQueue(t, t, "delayed")
			if err := operator.Delay(t.Context(), f.Fixture.Engine, x, time.UnixMilli(1)); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"operator: replay", func(t *testing.T, f *fixture.Flows) {
			l := f.Start(t).Lease
			f.Fixture.Fail(t, l, fixture.ForGood)
			if _, err := operator.Replay(t.Context(), f.Fixture.Engine, l.Execution, operator.ReplayCompleted); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"another's cancel", written(fixture.ForeignCancel), 0},
		{"another's cancel a moment later", func(t *testing.T, f *fixture.Flows) {
			x := f.Create(t)
			f.Advance(time.Second)
			f.SetExecution(t, x, fixture.ForeignCancel)
		}, 0},
		{"another's replay", written(fixture.ForeignCancel, fixture.ForeignReady), 1},
		{"another's priority", written("priority = 7"), 1},
		{"the least priority", written("priority = -2147483648"), 1},
		{"the least priority and back", written("priority = -2147483648", "priority = 2147483647"), 1},
		{"another's lane", written("lane_id = lane_id || '-other'"), 1},
		{"another's capabilities", written("required_capabilities = '{gpu}'"), 1},
		{"another's block", written(foreignBlock), 0},
		{"another's block and release, elsewhere", written(foreignBlock, "priority = 3, lane_id = lane_id || '-other'", fixture.ForeignReady), 1},
		{"a change that is none of the queue's", written("public_state = 'waiting', cancellation_reason = 'x'"), 1},
		{"many rows in one statement", func(t *testing.T, f *fixture.Flows) {
			for range 4 {
				f.Create(t)
			}
			f.Exec(t, "UPDATE ff_exec_core SET priority = priority + 1 WHERE lane_id = $1", f.Lane)
		}, 4},
		{"delete", func(t *testing.T, f *fixture.Flows) {
			f.Create(t)
			f.Exec(t, "DELETE FROM ff_exec_core WHERE lane_id = $1", f.Lane)
		}, 0},
		{"a cancel that is rolled back to a savepoint", func(t *testing.T, f *fixture.Flows) {
			x := f.Create(t)
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, "SAVEPOINT before")
			fixture.ExecIn(t, tx, fixture.UpdateExecution(fixture.ForeignCancel), x.Partition(), x.UUID())
			fixture.ExecIn(t, tx, "ROLLBACK TO before")
			fixture.Commit(t, tx)
		}, 1},
	} {
		// While the clock stands still the trigger looks for entries that this library deleted itself. Once it moves,
		// a write that deletes none has to be seen.
		for _, ticks := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, clock ticks %t", c.name, ticks), func(t *testing.T) {
				shared.Clear(t)
				f := fixture.FlowsOn(fixture.On(t, shared.Pool, shared.Url))
				f.Ticks = ticks
				c.do(t, f)
				f.WantQueue(t, t, c.name)
				queued := fixture.Texts(t, f.Pool, "SELECT execution_id::text FROM ffx_ready WHERE starts_with(lane_id, $1)", f.Lane)
				if len(queued) != c.queued {
					t.Errorf("%d are queued, want %d", len(queued), c.queued)
				}
			})
		}
	}
}

// blockEach creates an execution for each reason for which one is listed as blocked, and blocks it.
func blockEach(t *testing.T, f *fixture.Fixture, change ...func(*engine.ExecutionSpec)) map[state.BlockingReason]id.ExecutionID {
	t.Helper()
	blocked := make(map[state.BlockingReason]id.ExecutionID)
	for _, reason := range []state.BlockingReason{state.WaitingForCapableWorker, state.PausedByPolicy, state.PausedByOperator} {
		blocked[reason] = f.Create(t, change...)
		f.Block(t, blocked[reason], reason, "")
	}
	return blocked
}

// Neither a claim nor a completion calls the function of a trigger, except for members that a completion releases.
func TestQueueClaimsAndCompletionsCallNoTriggerFunction(t *testing.T) {
	shared := fixture.NewCloned(t)
	complete := func(ctx context.Context, e *engine.Engine, held []engine.Lease) error {
		completions := make([]engine.Completion, len(held))
		for i := range held {
			completions[i] = engine.Completion{Lease: held[i], Result: []byte("out")}
		}
		outcomes, err := e.CompleteExecutions(ctx, completions)
		return errors.Join(append(outcomes, err)...)
	}
	members := func(parts ...string) func(*testing.T, *fixture.Flows) {
		return func(t *testing.T, f *fixture.Flows) { f.Draw(t, nil, parts...) }
	}
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, f *fixture.Flows)
		claimed int
		ends    func(context.Context, *engine.Engine, []engine.Lease) error
		calls   int // at the end
	}{
		{"one", func(t *testing.T, f *fixture.Flows) { f.Create(t) }, 1, complete, 0},
		{"many", func(t *testing.T, f *fixture.Flows) {
			for range 20 {
				f.Create(t)
			}
		}, 20, complete, 0},
		{"with a deadline", func(t *testing.T, f *fixture.Flows) {
			f.Create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Hour) })
		}, 1, complete, 0},
		{"members of a flow", members("a", "b"), 2, complete, 0},
		{"members of a flow that release another", members("a>c", "b>c"), 2, complete, 1},
		{"leased again", func(t *testing.T, f *fixture.Flows) {
			c := f.Start(t)
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
				t.Fatal(err)
			}
		}, 1, complete, 0},
		{"retried", failAndRetry, 1, complete, 0},
		{"leased by the statement that locks first", func(t *testing.T, f *fixture.Flows) {
			f.SeedAttempt(t, f.Create(t), 0, nil)
			f.Create(t)
		}, 2, complete, 0},
		{
			"given back", func(t *testing.T, f *fixture.Flows) { f.Create(t); f.Create(t) }, 2,
			func(ctx context.Context, e *engine.Engine, held []engine.Lease) error {
				_, err := e.ReleaseLeases(ctx, held)
				return err
			}, 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared.Clear(t)
			f := fixture.FlowsOn(fixture.On(t, shared.Pool, shared.Url))
			c.arrange(t, f)
			f.Advance(time.Millisecond) // otherwise the function is called to find the change
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, "SET LOCAL track_functions = 'pl'")
			before := fixture.TriggerCalls(t, tx)
			e := f.WithTx(tx)
			claimer, err := e.NewClaimer(f.Worker())
			if err != nil {
				t.Fatal(err)
			}
			var held []engine.Lease
			for _, n := range []int{(c.claimed + 1) / 2, c.claimed / 2} { // from the head, then after the positions
				if n > 0 {
					claimed, err := claimer.Claim(t.Context(), n)
					if err != nil {
						t.Fatal(err)
					}
					for i := range claimed {
						held = append(held, claimed[i].Lease)
					}
				}
			}
			if len(held) != c.claimed {
				t.Fatalf("claimed %d, want %d", len(held), c.claimed)
			}
			if calls := fixture.TriggerCalls(t, tx) - before; calls != 0 {
				t.Errorf("claims call trigger functions %d times", calls)
			}
			if err := c.ends(t.Context(), e, held); err != nil {
				t.Fatal(err)
			}
			if calls := fixture.TriggerCalls(t, tx) - before; calls != c.calls {
				t.Errorf("trigger functions are called %d times, want %d", calls, c.calls)
			}
			fixture.Commit(t, tx)
			f.WantQueue(t, t, c.name)
		})
	}
}

// A cancel deletes the entries itself. But within the same millisecond as the last change the trigger cannot see
// that, and looks for them for nothing.
func TestQueueCancelsCallNoTriggerFunction(t *testing.T) {
	shared := fixture.NewCloned(t)
	for _, c := range []struct {
		name  string
		after time.Duration
		calls int
	}{
		{"later", time.Millisecond, 0},
		{"at once", 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared.Clear(t)
			f := fixture.FlowsOn(fixture.On(t, shared.Pool, shared.Url))
			flow := f.Draw(t, nil, "a>c", "b>c")
			f.Advance(c.after)
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, "SET LOCAL track_functions = 'pl'")
			before := fixture.TriggerCalls(t, tx)
			cancelled, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow})
			if err != nil || len(cancelled.Members) != 3 {
				t.Fatal(cancelled, err)
			}
			if calls := fixture.TriggerCalls(t, tx) - before; calls != c.calls {
				t.Errorf("trigger functions are called %d times, want %d", calls, c.calls)
			}
			fixture.Commit(t, tx)
			f.WantQueue(t, t, c.name)
		})
	}
}

// failAndRetry leaves an execution whose next attempt may begin at once.
func failAndRetry(t *testing.T, f *fixture.Flows) {
	t.Helper()
	f.Fixture.Fail(t, f.Start(t, fixture.Retrying(*policy.ImmediateRetries(0))).Lease, engine.Failure{})
}
