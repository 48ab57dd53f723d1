package limits

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// waysToALane are the operations that make an execution claimable. Each prepares a fixture, and returns the operation.
var waysToALane = []struct {
	name string
	act  func(t *testing.T, f *fixture.Fixture) (operation func())
}{
	{"creation", func(t *testing.T, f *fixture.Fixture) func() { return func() { create(t, f, 1) } }},
	{"creation of a flow", func(t *testing.T, f *fixture.Fixture) func() {
		return func() {
			ok(f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}}}}))(t)
		}
	}},
	{"a transaction", func(t *testing.T, f *fixture.Fixture) func() {
		return func() {
			nothing(t, f.InTx(t.Context(), func(_ pgx.Tx, bound *engine.Engine) error { return createIn(t, f, bound) }))
		}
	}},
	{"a step with the commit", func(t *testing.T, f *fixture.Fixture) func() { return inStep(t, f, false) }},
	{"a turn that ends its execution", func(t *testing.T, f *fixture.Fixture) func() { return inStep(t, f, true) }},
	{"release by an upstream", func(t *testing.T, f *fixture.Fixture) func() {
		ok(f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{
			{Key: "a", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}}, {Key: "b", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}},
		}, Edges: []engine.Edge{{From: "a", To: "b"}}}))(t)
		upstream := f.ClaimN(t, 1)[0]
		return func() { complete(t, f, upstream) }
	}},
	{"release of a lease", func(t *testing.T, f *fixture.Fixture) func() {
		l := f.Start(t).Lease
		return func() { ok(f.ReleaseLeases(t.Context(), []engine.Lease{l}))(t) }
	}},
	{"a retry at once", func(t *testing.T, f *fixture.Fixture) func() {
		l := f.Start(t, func(s *engine.ExecutionSpec) { s.Policy = &policy.Execution{Retry: policy.ImmediateRetries(3)} }).Lease
		return func() { f.Fail(t, l, engine.Failure{}) }
	}},
	{"promotion", func(t *testing.T, f *fixture.Fixture) func() {
		create(t, f, 1, func(s *engine.ExecutionSpec) { s.DelayUntil = f.Time().Add(time.Minute) })
		f.Advance(time.Minute)
		return func() { f.Once(t, upkeep.Of(f.Engine).PromoteDelayed) }
	}},
	{"an operator's promotion", func(t *testing.T, f *fixture.Fixture) func() {
		x := create(t, f, 1, func(s *engine.ExecutionSpec) { s.DelayUntil = f.Time().Add(time.Minute) })[0]
		return func() { nothing(t, operator.Delay(t.Context(), f.Engine, x, f.Time())) }
	}},
	{"a signal", func(t *testing.T, f *fixture.Fixture) func() {
		l := f.Suspend(t, engine.Received("go"))
		return func() { f.Signal(t, l, "go") }
	}},
	{"signals in a batch", func(t *testing.T, f *fixture.Fixture) func() {
		l := f.Suspend(t, engine.Received("go"))
		return func() { ok(f.SignalEach(t.Context(), []engine.SignalSpec{{Execution: l.Execution, Name: "go"}}))(t) }
	}},
	{"resume", func(t *testing.T, f *fixture.Fixture) func() {
		l := f.Suspend(t, engine.Received("go"))
		return func() { nothing(t, f.Resume(t.Context(), l.Execution, 0)) }
	}},
	{"the timeout of a wait", func(t *testing.T, f *fixture.Fixture) func() {
		f.Suspend(t, engine.Received("go"), func(s *engine.SuspendSpec) { s.OnTimeout = engine.ResumeOnTimeout })
		f.Advance(time.Hour)
		return func() { f.Once(t, upkeep.Of(f.Engine).ExpireWaits) }
	}},
	{"the end of a call", func(t *testing.T, f *fixture.Fixture) func() {
		complete(t, f, called(t, f, "part"))
		return func() { f.Once(t, upkeep.Of(f.Engine).ResumeCallers) }
	}},
	{"an expired lease", func(t *testing.T, f *fixture.Fixture) func() {
		f.Start(t)
		f.Advance(fixture.LeaseTTL)
		return func() { f.Once(t, upkeep.Of(f.Engine).ExpireLeases) }
	}},
	{"the end of a block", func(t *testing.T, f *fixture.Fixture) func() {
		x := create(t, f, 1)[0]
		f.Block(t, x, state.PausedByOperator, "")
		return func() { f.Unblock(t, x, state.PausedByOperator) }
	}},
	{"a capable worker", func(t *testing.T, f *fixture.Fixture) func() {
		f.Block(t, create(t, f, 1)[0], state.WaitingForCapableWorker, "")
		f.Register(t)
		return func() { f.Once(t, upkeep.Of(f.Engine).UnblockRoutes) }
	}},
	{"the end of a pause", func(t *testing.T, f *fixture.Fixture) func() {
		create(t, f, 1)
		nothing(t, operator.PauseLane(t.Context(), f.Engine, f.Lane, operator.LanePause{Reason: "a test"}))
		return func() { nothing(t, operator.ResumeLane(t.Context(), f.Engine, f.Lane)) }
	}},
	{"replay", func(t *testing.T, f *fixture.Fixture) func() {
		x := f.Start(t)
		complete(t, f, x)
		return func() { ok(operator.Replay(t.Context(), f.Engine, x.ID, operator.ReplayCompleted))(t) }
	}},
	{"replays by filter", func(t *testing.T, f *fixture.Fixture) func() {
		complete(t, f, f.Start(t))
		return func() {
			ok(operator.ReplayWhere(t.Context(), f.Engine, engine.ExecutionFilter{State: state.PublicCompleted}, operator.Bulk{}, operator.ReplayCompleted))(t)
		}
	}},
	{"moves by filter", func(t *testing.T, f *fixture.Fixture) func() {
		create(t, f, 1, func(s *engine.ExecutionSpec) { s.Lane = "elsewhere" })
		return func() {
			ok(operator.MoveWhere(t.Context(), f.Engine, engine.ExecutionFilter{Lane: "elsewhere"}, f.Lane, operator.Bulk{}))(t)
		}
	}},
	{"fork", func(t *testing.T, f *fixture.Fixture) func() {
		x := f.Start(t)
		complete(t, f, x)
		return func() { ok(operator.Fork(t.Context(), f.Engine, x.ID, operator.ForkSpec{}))(t) }
	}},
	{"a tick of a schedule", func(t *testing.T, f *fixture.Fixture) func() {
		nothing(t, schedule.Put(t.Context(), f.Engine, schedule.Spec{Name: "s", Every: time.Minute, Execution: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}}))
		f.Advance(time.Minute)
		return func() { f.Once(t, upkeep.Of(f.Engine).RunSchedules) }
	}},
	{"a pass of the gate", func(t *testing.T, f *fixture.Fixture) func() {
		b := budgetOf(t, f, 10)
		create(t, f, 1, within(b))
		return func() { admit(t, f.Engine) }
	}},
	{"a pass of the gate after the reset of a budget", func(t *testing.T, f *fixture.Fixture) func() {
		b := budgetOf(t, f, 10)
		spend(t, f, b, 10)
		create(t, f, 1, within(b))
		admit(t, f.Engine)
		return func() {
			for gateNotified(f) {
			}
			ok(budget.Reset(t.Context(), f.Engine, b))(t)
			if !gateNotified(f) {
				t.Error("the reset did not ring the gate")
			}
			admit(t, f.Engine)
		}
	}},
	{"growth of a flow", func(t *testing.T, f *fixture.Fixture) func() {
		flow := ok(f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Kind: "test", Lane: "elsewhere"}}}}))(t)
		return func() {
			ok(f.GrowFlow(t.Context(), engine.Growth{Flow: flow.ID, Nodes: []engine.Node{{Key: "b", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}}}}))(t)
		}
	}},
	{"release by an upstream that fails", func(t *testing.T, f *fixture.Fixture) func() {
		upstream := cleanUp(t, f)
		return func() { f.Fail(t, upstream, engine.Failure{Class: policy.Permanent}) }
	}},
	{"release by an upstream that is cancelled", func(t *testing.T, f *fixture.Fixture) func() {
		upstream := cleanUp(t, f)
		return func() { f.Cancel(t, upstream.Execution) }
	}},
	{"release by the cancel of a flow", func(t *testing.T, f *fixture.Fixture) func() {
		upstream := cleanUp(t, f)
		flow := f.Describe(t, upstream.Execution).Flow
		return func() { ok(f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: *flow}))(t) }
	}},
	{"the end of a member of a sequence", func(t *testing.T, f *fixture.Fixture) func() {
		first := inSequence(t, f, engine.SequenceSkips)
		return func() { complete(t, f, first) }
	}},
	{"ends of members of sequences, with a claim", func(t *testing.T, f *fixture.Fixture) func() {
		first := inSequence(t, f, engine.SequenceSkips)
		return func() {
			claimer := ok(f.NewClaimer(f.WorkerOn("elsewhere")))(t)
			_, _, err := claimer.CompleteAndClaim(t.Context(), []engine.Completion{{Lease: first.Lease}}, 1)
			nothing(t, err)
		}
	}},
	{"the failure of a member of a sequence", func(t *testing.T, f *fixture.Fixture) func() {
		first := inSequence(t, f, engine.SequenceSkips)
		return func() { f.Fail(t, first.Lease, engine.Failure{Class: policy.Permanent}) }
	}},
	{"the cancel of a member of a sequence", func(t *testing.T, f *fixture.Fixture) func() {
		first := inSequence(t, f, engine.SequenceSkips)
		return func() { f.Cancel(t, first.ID) }
	}},
	{"the deadline of a member of a sequence", func(t *testing.T, f *fixture.Fixture) func() {
		inSequence(t, f, engine.SequenceSkips)
		f.Advance(time.Hour)
		return func() { f.Once(t, upkeep.Of(f.Engine).ExpireDeadlines) }
	}},
	{"the end of a member of a sequence, in a transaction", func(t *testing.T, f *fixture.Fixture) func() {
		first := inSequence(t, f, engine.SequenceSkips)
		return func() {
			nothing(t, f.InTx(t.Context(), func(_ pgx.Tx, bound *engine.Engine) error {
				return bound.CompleteExecution(t.Context(), first.Lease, nil)
			}))
		}
	}},
	{"a late look at a sequence", func(t *testing.T, f *fixture.Fixture) func() {
		first := inSequence(t, f, engine.SequenceSkips)
		tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}) // it leaves a note
		nothing(t, f.WithTx(tx).CompleteExecution(t.Context(), first.Lease, nil))
		fixture.Commit(t, tx)
		return func() { f.Once(t, upkeep.Of(f.Engine).AdvanceSequences) }
	}},
	{"continuing a sequence", func(t *testing.T, f *fixture.Fixture) func() {
		f.Fail(t, inSequence(t, f, engine.SequenceStops).Lease, engine.Failure{Class: policy.Permanent})
		return func() { nothing(t, operator.ContinueSequence(t.Context(), f.Engine, engine.SequenceName{Key: "s"})) }
	}},
	{"a delay that is over", func(t *testing.T, f *fixture.Fixture) func() {
		l := f.Start(t).Lease
		return func() { ok(f.DelayExecutions(t.Context(), []engine.Delay{{Lease: l}}))(t) }
	}},
	{"the timeout of an attempt", func(t *testing.T, f *fixture.Fixture) func() {
		f.Start(t, func(s *engine.ExecutionSpec) {
			s.Policy = &policy.Execution{AttemptTimeout: fixture.LeaseTTL / 2, Retry: policy.ImmediateRetries(3)}
		})
		f.Advance(fixture.LeaseTTL / 2)
		return func() { f.Once(t, upkeep.Of(f.Engine).ExpireAttempts) }
	}},
	{"a revoked lease", func(t *testing.T, f *fixture.Fixture) func() {
		l := f.Start(t).Lease
		return func() {
			ok(operator.Revoke(t.Context(), f.Engine, operator.RevokeSpec{ID: l.Execution, Reason: "a test"}))(t)
		}
	}},
	{"a triggered schedule", func(t *testing.T, f *fixture.Fixture) func() {
		nothing(t, schedule.Put(t.Context(), f.Engine, schedule.Spec{Name: "s", Every: time.Minute, Execution: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}}))
		return func() { ok(schedule.Trigger(t.Context(), f.Engine, schedule.Name{Name: "s"}))(t) }
	}},
}

// cleanUp returns the claimed upstream of an execution that runs when it fails.
func cleanUp(t *testing.T, f *fixture.Fixture) engine.Lease {
	t.Helper()
	never := &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	ok(f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{
		{Key: "a", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Policy: never}},
		{Key: "b", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}, When: policy.OnFailure()},
	}, Edges: []engine.Edge{{From: "a", To: "b"}}}))(t)
	return f.ClaimN(t, 1)[0].Lease
}

// inSequence returns the claimed first member of a sequence with another one behind it.
func inSequence(t *testing.T, f *fixture.Fixture, onFailure engine.OnFailure) engine.Claimed {
	t.Helper()
	s := engine.Sequence{Key: "s", OnFailure: onFailure}
	first := f.Start(t, func(spec *engine.ExecutionSpec) {
		spec.Sequence, spec.Deadline = s, f.Time().Add(time.Hour)
		spec.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	})
	create(t, f, 1, func(spec *engine.ExecutionSpec) { spec.Sequence = s })
	return first
}

// nothing fails the test after an error.
func nothing(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func createIn(t *testing.T, f *fixture.Fixture, bound *engine.Engine) error {
	_, err := bound.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane})
	return err
}

// inStep is a step whose transaction creates an execution, and may end its own.
func inStep(t *testing.T, f *fixture.Fixture, ends bool) func() {
	l := f.Start(t).Lease
	return func() {
		ok(f.InStep(t.Context(), func(_ pgx.Tx, bound *engine.Engine) (engine.StepRecord, error) {
			return engine.StepRecord{Lease: l, Name: "part", Ends: ends}, createIn(t, f, bound)
		}, func(bound *engine.Engine) error { return bound.CompleteExecution(t.Context(), l, nil) }))(t)
	}
}

// called returns a claimed execution that another one has called, and waits for.
func called(t *testing.T, f *fixture.Fixture, step string) engine.Claimed {
	t.Helper()
	l := f.Start(t).Lease
	ok(f.Call(t.Context(), engine.CallSpec{Lease: l, Name: step, Executions: []engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}}}))(t)
	ok(f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: l, Call: step}))(t)
	return f.ClaimN(t, 1)[0]
}

// Whatever makes an execution claimable notifies its lane after the commit, so that no worker finds it by polling alone.
func TestWaysToALaneNotifyIt(t *testing.T) {
	for _, c := range waysToALane {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			f.Engine = f.EngineOn(t, f.Pool, engine.Config{NoListener: true})
			operation := c.act(t, f)
			if lanes := fixture.WakesOf(t, f.Engine, operation); !slices.Contains(lanes, f.Lane) {
				t.Errorf("notified %q", lanes)
			}
			f.ClaimN(t, 1)
		})
	}
}
