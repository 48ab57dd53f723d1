package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// The columns of an entry, as the queue has them and as the execution has them.
const (
	entries   = "SELECT lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind FROM ffx_ready"
	claimable = `SELECT lane_id, - priority::bigint, created_at_ms, execution_id, partition_key, required_capabilities,
		coalesce(raw_fields ->> 'execution_kind', '') FROM ff_exec_core WHERE lifecycle_phase = 'runnable' AND eligibility_state = 'eligible_now'`

	// The same of the list of what is blocked.
	listed  = "SELECT partition_key, execution_id, lane_id, eligibility_state, required_capabilities FROM ffx_blocked"
	blocked = `SELECT partition_key, execution_id, lane_id, eligibility_state, required_capabilities FROM ff_exec_core
		WHERE lifecycle_phase = 'runnable' AND eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')`
)

// wantQueue fails the test when the queue does not hold exactly the claimable executions of the database, the list of
// what is blocked not exactly the blocked ones, or a lease is without a timer.
func (f *fixture) wantQueue(t *testing.T, on reporter, after string) {
	t.Helper()
	for what, sql := range map[string]string{
		"is not queued": claimable + " EXCEPT ALL " + entries, "is queued": entries + " EXCEPT ALL " + claimable,
		"is not listed": blocked + " EXCEPT ALL " + listed, "is listed": listed + " EXCEPT ALL " + blocked,
	} {
		for _, row := range texts(t, f.pool, "SELECT q::text FROM ("+sql+") AS q") {
			on.Errorf("%s: %s %s", after, row, what)
		}
	}
	f.wantTimer(t, on, after)
}

// background runs the jobs that change executions until nothing is due.
func (f *fixture) background(t *testing.T) {
	t.Helper()
	for _, j := range []job{f.Maintenance().PromoteDelayed, f.Maintenance().ExpireAttempts, f.Maintenance().ExpireDeadlines, f.Maintenance().ExpireLeases} {
		for n := 1; n > 0; {
			var err error
			if n, err = j(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// clear removes all executions, so that a test that failed fails no other.
func (f *fixture) clear(t *testing.T) {
	t.Helper()
	f.exec(t, "TRUNCATE ff_exec_core, ff_attempt, ffx_ready, ffx_lease_timer, ffx_blocked")
}

// What another program writes, which knows nothing of the queue.
const (
	foreignClaim = `lifecycle_phase = 'active', ownership_state = 'leased', eligibility_state = 'not_applicable',
		public_state = 'running', attempt_state = 'running_attempt', blocking_reason = NULL`
	foreignCancel = `lifecycle_phase = 'cancelled', ownership_state = 'unowned', eligibility_state = 'not_applicable',
		public_state = 'cancelled', attempt_state = 'cancelled', blocking_reason = NULL, terminal_at_ms = 1`
	foreignBlock = `eligibility_state = 'blocked_by_operator', public_state = 'rate_limited', blocking_reason = 'paused_by_operator'`
	foreignReady = `lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'eligible_now',
		public_state = 'waiting', blocking_reason = 'waiting_for_worker', terminal_at_ms = NULL`
)

// Whoever writes, and whatever, the queue holds the claimable executions afterwards.
func TestQueue_follows_every_write(t *testing.T) {
	shared := grantFixture(t)
	pause := retrying(policy.Retry{Backoff: policy.Fixed(time.Second)})
	timeout := func(retries int) func(*engine.ExecutionSpec) {
		return func(spec *engine.ExecutionSpec) {
			spec.Policy = &policy.Execution{
				AttemptTimeout: time.Second,
				Retry:          &policy.Retry{MaxRetries: retries, Backoff: policy.Fixed(0)},
			}
		}
	}
	delayed := func(spec *engine.ExecutionSpec) { spec.DelayUntil = start.Add(time.Second) }
	written := func(assignments ...string) func(*testing.T, *flowFixture) {
		return func(t *testing.T, f *flowFixture) {
			x := f.create(t)
			for _, a := range assignments {
				f.setExecution(t, x, a)
			}
		}
	}
	created := func(ends string) func(*testing.T, *flowFixture) {
		return func(t *testing.T, f *flowFixture) {
			tx := f.begin(t)
			if _, err := f.WithTx(tx).CreateExecutions(t.Context(), []engine.ExecutionSpec{{Kind: "test", Lane: f.lane}, {Kind: "test", Lane: f.lane}}); err != nil {
				t.Fatal(err)
			}
			execIn(t, tx, ends)
		}
	}
	for _, c := range []struct {
		name   string
		do     func(t *testing.T, f *flowFixture)
		queued int
	}{
		{"create", func(t *testing.T, f *flowFixture) { f.create(t) }, 1},
		{"create many", func(t *testing.T, f *flowFixture) {
			if _, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: f.lane}}, 5)); err != nil {
				t.Fatal(err)
			}
		}, 5},
		{"create a second time", func(t *testing.T, f *flowFixture) {
			for range 2 {
				if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.lane, IdempotencyKey: f.key("key")}); err != nil {
					t.Fatal(err)
				}
			}
		}, 1},
		{"create in a transaction that commits", created("COMMIT"), 2},
		{"create in a transaction that rolls back", created("ROLLBACK"), 0},
		{"create with a delay", func(t *testing.T, f *flowFixture) { f.create(t, delayed) }, 0},
		{"promote", func(t *testing.T, f *flowFixture) {
			f.create(t, delayed)
			f.advance(time.Second)
			f.background(t)
		}, 1},
		{"stop at a gate", func(t *testing.T, f *flowFixture) { f.attach(t, f.create(t), []id.BudgetID{id.NewBudgetID()}, nil) }, 0},
		{"create a flow", func(t *testing.T, f *flowFixture) { f.draw(t, nil, "a>c", "b>c") }, 2},
		{"release a member", func(t *testing.T, f *flowFixture) { f.succeed(t, f.draw(t, nil, "a>c", "b>c", "c>d"), "a", "b") }, 1},
		{"skip a member", func(t *testing.T, f *flowFixture) { f.fail(t, f.draw(t, nil, "a>c", "b>c"), "a") }, 0},
		{"claim some", func(t *testing.T, f *flowFixture) {
			f.create(t)
			f.create(t)
			f.create(t)
			f.claimN(t, 2)
		}, 1},
		{"claim after positions", func(t *testing.T, f *flowFixture) {
			claimer := f.claimer(t)
			for range 4 {
				f.create(t)
			}
			for range 3 {
				if claimed, err := claimer.Claim(t.Context(), 1); err != nil || len(claimed) != 1 {
					t.Fatal(claimed, err)
				}
			}
		}, 1},
		{"claim what the fast path does not serve", func(t *testing.T, f *flowFixture) {
			f.seedAttempt(t, f.create(t), 0, nil)
			f.create(t)
			f.claimN(t, 2)
		}, 0},
		{"complete", func(t *testing.T, f *flowFixture) {
			if err := f.CompleteExecution(t.Context(), f.start(t).Lease, nil); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"fail, to be retried at once", func(t *testing.T, f *flowFixture) { f.fixture.fail(t, f.start(t).Lease, engine.Failure{}) }, 1},
		{"fail, to be retried later", func(t *testing.T, f *flowFixture) { f.fixture.fail(t, f.start(t, pause).Lease, engine.Failure{}) }, 0},
		{"fail for good", func(t *testing.T, f *flowFixture) { f.fixture.fail(t, f.start(t).Lease, forGood) }, 0},
		{"release and lease again", func(t *testing.T, f *flowFixture) {
			held := f.startMany(t, 2)
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{held[0].Lease, held[1].Lease}); err != nil {
				t.Fatal(err)
			}
			f.wantQueue(t, t, "released")
			if c := f.claim(t); !c.Resumed {
				t.Errorf("claimed %+v, want it resumed", c)
			}
		}, 1},
		{"expire a lease", func(t *testing.T, f *flowFixture) { f.start(t); f.advance(leaseTTL); f.background(t) }, 1},
		{"attempt timeout, with a retry", func(t *testing.T, f *flowFixture) {
			f.start(t, timeout(1))
			f.advance(time.Second)
			f.background(t)
		}, 1},
		{"attempt timeout for good", func(t *testing.T, f *flowFixture) {
			f.start(t, timeout(policy.NoRetries))
			f.advance(time.Second)
			f.background(t)
		}, 0},
		{"deadline of waiting work", func(t *testing.T, f *flowFixture) {
			f.create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Second) })
			f.advance(time.Second)
			f.background(t)
		}, 0},
		{"another's creation", func(t *testing.T, f *flowFixture) { f.seed(t, columns{"lifecycle_phase": "runnable"}) }, 1},
		{"another's creation, not runnable yet", func(t *testing.T, f *flowFixture) { f.seed(t, nil) }, 0},
		{"another's claim, which raises no epoch", written(foreignClaim), 0},
		{"another's claim after one of ours", written(foreignReady+", ffx_lease_epoch = 4", foreignClaim), 0},
		{"cancel", func(t *testing.T, f *flowFixture) {
			f.create(t)
			x := f.create(t)
			f.advance(time.Second)
			f.cancel(t, x)
		}, 1},
		{"cancel what has another priority and lane by now", func(t *testing.T, f *flowFixture) {
			x := f.create(t)
			f.setExecution(t, x, "priority = 3, lane_id = lane_id || '-other'")
			f.advance(time.Second)
			f.cancel(t, x)
		}, 0},
		{"cancel a flow", func(t *testing.T, f *flowFixture) {
			flow := f.draw(t, nil, "a>d", "b>d", "c>d")
			f.claimN(t, 1)
			f.advance(time.Second)
			f.cancelFlow(t, flow, state.CancelAll)
		}, 0},
		{"cancel a member that waits for others", func(t *testing.T, f *flowFixture) {
			flow := f.draw(t, nil, "a>c", "b>c")
			f.cancel(t, f.NodeID(flow, "c"))
		}, 2},
		{"cancel what is delayed", func(t *testing.T, f *flowFixture) { f.cancel(t, f.create(t, delayed)) }, 0},
		{"cancel what is leased", func(t *testing.T, f *flowFixture) { f.cancel(t, f.start(t).ID) }, 0},
		{"deadline of what is delayed, and of a member that waits", func(t *testing.T, f *flowFixture) {
			overdue := func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Second) }
			f.create(t, overdue, func(spec *engine.ExecutionSpec) { spec.DelayUntil = start.Add(time.Minute) })
			spec := chart(nil, "a>c")
			overdue(&spec.Nodes[1].Spec)
			f.createFlow(t, spec)
			f.advance(time.Second)
			f.background(t)
		}, 1},
		{"block", func(t *testing.T, f *flowFixture) { f.blockEach(t) }, 0},
		{"block and unblock", func(t *testing.T, f *flowFixture) {
			for reason, x := range f.blockEach(t) {
				f.unblock(t, x, reason)
			}
		}, 3},
		{"cancel what is blocked", func(t *testing.T, f *flowFixture) {
			for _, x := range f.blockEach(t) {
				f.cancel(t, x)
			}
		}, 0},
		{"deadline of what is blocked", func(t *testing.T, f *flowFixture) {
			f.blockEach(t, func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Second) })
			f.advance(time.Second)
			f.background(t)
		}, 0},
		{"what is blocked moves to another lane", func(t *testing.T, f *flowFixture) {
			for _, x := range f.blockEach(t) {
				f.setExecution(t, x, "lane_id = lane_id || '-other', required_capabilities = '{gpu}'")
			}
		}, 0},
		{"what is blocked is blocked by another", func(t *testing.T, f *flowFixture) {
			f.setExecution(t, f.blockEach(t)[state.PausedByPolicy], foreignBlock)
		}, 0},
		{"another's cancel of what is blocked", func(t *testing.T, f *flowFixture) {
			for _, x := range f.blockEach(t) {
				f.setExecution(t, x, foreignCancel)
			}
		}, 0},
		{"another's claim of what is blocked", func(t *testing.T, f *flowFixture) {
			for _, x := range f.blockEach(t) {
				f.setExecution(t, x, foreignClaim)
			}
		}, 0},
		{"what is blocked is deleted", func(t *testing.T, f *flowFixture) {
			f.blockEach(t)
			f.exec(t, "DELETE FROM ff_exec_core WHERE lane_id = $1", f.lane)
		}, 0},
		{"what has ended is deleted", func(t *testing.T, f *flowFixture) {
			f.setExecution(t, f.create(t), foreignCancel)
			f.create(t)
			f.exec(t, "DELETE FROM ff_exec_core WHERE lane_id = $1 AND lifecycle_phase = 'cancelled'", f.lane)
		}, 1},
		{"grant", func(t *testing.T, f *flowFixture) { f.issue(t, f.create(t)) }, 0},
		{"claim by a grant", func(t *testing.T, f *flowFixture) {
			if _, err := f.Grants().ClaimExecution(t.Context(), f.using(f.issue(t, f.create(t)))); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"grant and claim at once", func(t *testing.T, f *flowFixture) {
			if _, err := f.Grants().IssueGrantAndClaim(t.Context(), f.create(t), "", leaseTTL); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"operator: priority, delay, promotion", func(t *testing.T, f *flowFixture) {
			x := f.create(t)
			if err := f.Operator().ChangePriority(t.Context(), x, 12); err != nil {
				t.Fatal(err)
			}
			if err := f.Operator().DelayExecution(t.Context(), x, f.now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			f.wantQueue(t, t, "delayed")
			if err := f.Operator().DelayExecution(t.Context(), x, time.UnixMilli(1)); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"operator: replay", func(t *testing.T, f *flowFixture) {
			l := f.start(t).Lease
			f.fixture.fail(t, l, forGood)
			if _, err := f.Operator().ReplayExecution(t.Context(), l.Execution); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"another's cancel", written(foreignCancel), 0},
		{"another's cancel a moment later", func(t *testing.T, f *flowFixture) {
			x := f.create(t)
			f.advance(time.Second)
			f.setExecution(t, x, foreignCancel)
		}, 0},
		{"another's replay", written(foreignCancel, foreignReady), 1},
		{"another's priority", written("priority = 7"), 1},
		{"the least priority", written("priority = -2147483648"), 1},
		{"the least priority and back", written("priority = -2147483648", "priority = 2147483647"), 1},
		{"another's lane", written("lane_id = lane_id || '-other'"), 1},
		{"another's capabilities", written("required_capabilities = '{gpu}'"), 1},
		{"another's block", written(foreignBlock), 0},
		{"another's block and release, elsewhere", written(foreignBlock, "priority = 3, lane_id = lane_id || '-other'", foreignReady), 1},
		{"a change that is none of the queue's", written("public_state = 'waiting', cancellation_reason = 'x'"), 1},
		{"many rows in one statement", func(t *testing.T, f *flowFixture) {
			for range 4 {
				f.create(t)
			}
			f.exec(t, "UPDATE ff_exec_core SET priority = priority + 1 WHERE lane_id = $1", f.lane)
		}, 4},
		{"delete", func(t *testing.T, f *flowFixture) {
			f.create(t)
			f.exec(t, "DELETE FROM ff_exec_core WHERE lane_id = $1", f.lane)
		}, 0},
		{"a cancel that is rolled back to a savepoint", func(t *testing.T, f *flowFixture) {
			x := f.create(t)
			tx := f.begin(t)
			execIn(t, tx, "SAVEPOINT before")
			execIn(t, tx, updateExecution(foreignCancel), x.Partition(), x.UUID())
			execIn(t, tx, "ROLLBACK TO before")
			commit(t, tx)
		}, 1},
	} {
		// While the clock stands still the trigger looks for entries that this library took out itself. Once it goes on
		// whoever takes out none has to be seen.
		for _, ticks := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, clock ticks %t", c.name, ticks), func(t *testing.T) {
				shared.clear(t)
				f := flowsOn(fixtureOn(t, shared.pool, shared.url))
				f.ticks = ticks
				c.do(t, f)
				f.wantQueue(t, t, c.name)
				queued := texts(t, f.pool, "SELECT execution_id::text FROM ffx_ready WHERE starts_with(lane_id, $1)", f.lane)
				if len(queued) != c.queued {
					t.Errorf("%d are queued, want %d", len(queued), c.queued)
				}
			})
		}
	}
}

// blockEach creates an execution for each reason for which one is listed as blocked, and blocks it.
func (f *fixture) blockEach(t *testing.T, change ...func(*engine.ExecutionSpec)) map[state.BlockingReason]id.ExecutionID {
	t.Helper()
	blocked := make(map[state.BlockingReason]id.ExecutionID)
	for _, reason := range []state.BlockingReason{state.WaitingForCapableWorker, state.PausedByPolicy, state.PausedByOperator} {
		blocked[reason] = f.create(t, change...)
		f.block(t, blocked[reason], reason, "")
	}
	return blocked
}

// triggerCalls returns how often the functions of the queue's triggers were called on a connection, since its counts
// were reported last.
func triggerCalls(t *testing.T, on pgx.Tx) int {
	t.Helper()
	type row struct{ Calls int }
	return one[row](t, on, `SELECT coalesce(sum(calls), 0)::integer AS calls FROM pg_stat_xact_user_functions
		WHERE funcname IN ('ffx_fill_ready', 'ffx_keep_waiting')`).Calls
}

// Neither a claim nor a completion calls the function of a trigger, save for members that a completion releases.
func TestQueue_claims_and_completions_call_no_trigger_function(t *testing.T) {
	shared := cloneFixture(t)
	complete := func(ctx context.Context, e *engine.Engine, held []engine.Lease) error {
		completions := make([]engine.Completion, len(held))
		for i := range held {
			completions[i] = engine.Completion{Lease: held[i], Result: []byte("out")}
		}
		outcomes, err := e.CompleteExecutions(ctx, completions)
		return errors.Join(append(outcomes, err)...)
	}
	members := func(parts ...string) func(*testing.T, *flowFixture) {
		return func(t *testing.T, f *flowFixture) { f.draw(t, nil, parts...) }
	}
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, f *flowFixture)
		claimed int
		ends    func(context.Context, *engine.Engine, []engine.Lease) error
		calls   int // at the end
	}{
		{"one", func(t *testing.T, f *flowFixture) { f.create(t) }, 1, complete, 0},
		{"many", func(t *testing.T, f *flowFixture) {
			for range 20 {
				f.create(t)
			}
		}, 20, complete, 0},
		{"with a deadline", func(t *testing.T, f *flowFixture) {
			f.create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Hour) })
		}, 1, complete, 0},
		{"members of a flow", members("a", "b"), 2, complete, 0},
		{"members of a flow that release another", members("a>c", "b>c"), 2, complete, 1},
		{"leased again", func(t *testing.T, f *flowFixture) {
			c := f.start(t)
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
				t.Fatal(err)
			}
		}, 1, complete, 0},
		{"retried", func(t *testing.T, f *flowFixture) { f.fixture.fail(t, f.start(t).Lease, engine.Failure{}) }, 1, complete, 0},
		{"leased by the statement that locks first", func(t *testing.T, f *flowFixture) {
			f.seedAttempt(t, f.create(t), 0, nil)
			f.create(t)
		}, 2, complete, 0},
		{
			"given back", func(t *testing.T, f *flowFixture) { f.create(t); f.create(t) }, 2,
			func(ctx context.Context, e *engine.Engine, held []engine.Lease) error {
				_, err := e.ReleaseLeases(ctx, held)
				return err
			}, 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared.clear(t)
			f := flowsOn(fixtureOn(t, shared.pool, shared.url))
			c.arrange(t, f)
			f.advance(time.Millisecond) // or the function is called to see what changed
			tx := f.begin(t)
			execIn(t, tx, "SET LOCAL track_functions = 'pl'")
			before := triggerCalls(t, tx)
			e := f.WithTx(tx)
			claimer, err := e.NewClaimer(f.worker())
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
			if calls := triggerCalls(t, tx) - before; calls != 0 {
				t.Errorf("claims call trigger functions %d times", calls)
			}
			if err := c.ends(t.Context(), e, held); err != nil {
				t.Fatal(err)
			}
			if calls := triggerCalls(t, tx) - before; calls != c.calls {
				t.Errorf("trigger functions are called %d times, want %d", calls, c.calls)
			}
			commit(t, tx)
			f.wantQueue(t, t, c.name)
		})
	}
}

// A cancel takes the entries out itself. But within the same millisecond as the last change the trigger cannot tell that, and
// looks for them for nothing.
func TestQueue_cancels_call_no_trigger_function(t *testing.T) {
	shared := cloneFixture(t)
	for _, c := range []struct {
		name  string
		after time.Duration
		calls int
	}{
		{"later", time.Millisecond, 0},
		{"at once", 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared.clear(t)
			f := flowsOn(fixtureOn(t, shared.pool, shared.url))
			flow := f.draw(t, nil, "a>c", "b>c")
			f.advance(c.after)
			tx := f.begin(t)
			execIn(t, tx, "SET LOCAL track_functions = 'pl'")
			before := triggerCalls(t, tx)
			cancelled, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow})
			if err != nil || len(cancelled.Members) != 3 {
				t.Fatal(cancelled, err)
			}
			if calls := triggerCalls(t, tx) - before; calls != c.calls {
				t.Errorf("trigger functions are called %d times, want %d", calls, c.calls)
			}
			commit(t, tx)
			f.wantQueue(t, t, c.name)
		})
	}
}
