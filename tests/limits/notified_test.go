package limits

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// gateNotified reports whether the gate was notified since the last call.
func gateNotified(f *fixture.Fixture) bool {
	select {
	case <-upkeep.Of(f.Engine).Gated():
		return true
	default:
		return false
	}
}

// Every way of an execution to its gate notifies the gate, so that the process looks at once.
func TestWaysToTheGateNotifyIt(t *testing.T) {
	spec := func(f *fixture.Fixture) engine.ExecutionSpec {
		spec := kindOf(f, atOnce(1)).Spec(sync{})
		spec.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: 3, Backoff: policy.Fixed(time.Minute)}}
		return spec
	}
	start := func(t *testing.T, f *fixture.Fixture) engine.Claimed {
		t.Helper()
		ok(f.CreateExecution(t.Context(), spec(f)))(t)
		return wantClaimable(t, f, 1, "the execution")[0]
	}
	for _, c := range []struct {
		name string
		act  func(t *testing.T, f *fixture.Fixture) (act func())
	}{
		{"creation", func(t *testing.T, f *fixture.Fixture) func() {
			ok(f.CreateExecution(t.Context(), spec(f)))(t) // takes the place
			return func() { ok(f.CreateExecution(t.Context(), spec(f)))(t) }
		}},
		{"release by an upstream", func(t *testing.T, f *fixture.Fixture) func() {
			ok(f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{
				{Key: "a", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}}, {Key: "b", Spec: spec(f)},
			}, Edges: []engine.Edge{{From: "a", To: "b"}}}))(t)
			upstream := f.ClaimN(t, 1)[0]
			return func() { complete(t, f, upstream) }
		}},
		{"promotion", func(t *testing.T, f *fixture.Fixture) func() {
			f.Fail(t, start(t, f).Lease, engine.Failure{})
			f.Advance(time.Minute)
			return func() { f.Once(t, upkeep.Of(f.Engine).PromoteDelayed) }
		}},
		{"an operator's promotion", func(t *testing.T, f *fixture.Fixture) func() {
			x := start(t, f)
			f.Fail(t, x.Lease, engine.Failure{})
			return func() {
				if err := operator.Delay(t.Context(), f.Engine, x.ID, f.Time()); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"replay", func(t *testing.T, f *fixture.Fixture) func() {
			x := start(t, f)
			complete(t, f, x)
			return func() { ok(operator.Replay(t.Context(), f.Engine, x.ID, operator.ReplayCompleted))(t) }
		}},
		{"fork", func(t *testing.T, f *fixture.Fixture) func() {
			x := start(t, f)
			complete(t, f, x)
			return func() { ok(operator.Fork(t.Context(), f.Engine, x.ID, operator.ForkSpec{}))(t) }
		}},
		{"signal", func(t *testing.T, f *fixture.Fixture) func() {
			x := start(t, f)
			f.SuspendAgain(t, x.Lease, engine.Received("go"))
			return func() { f.Signal(t, x.Lease, "go") }
		}},
		{"resume", func(t *testing.T, f *fixture.Fixture) func() {
			x := start(t, f)
			f.SuspendAgain(t, x.Lease, engine.Received("go"))
			return func() {
				if err := f.Resume(t.Context(), x.ID, 0); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"the end of a call", func(t *testing.T, f *fixture.Fixture) func() {
			x := start(t, f)
			ok(f.Call(t.Context(), engine.CallSpec{
				Lease: x.Lease, Name: "part", Executions: []engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}},
			}))(t)
			ok(f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: x.Lease, Call: "part"}))(t)
			complete(t, f, f.ClaimN(t, 1)[0])
			return func() { f.Once(t, upkeep.Of(f.Engine).ResumeCallers) }
		}},
		{"a block", func(t *testing.T, f *fixture.Fixture) func() {
			x := ok(f.CreateExecution(t.Context(), spec(f)))(t)
			admit(t, f.Engine)
			return func() { f.Block(t, x.ID, state.WaitingForQuota, "") }
		}},
		{"a capable worker", func(t *testing.T, f *fixture.Fixture) func() {
			x := ok(f.CreateExecution(t.Context(), spec(f)))(t)
			admit(t, f.Engine)
			f.Block(t, x.ID, state.WaitingForCapableWorker, "")
			f.Register(t)
			return func() { f.Once(t, upkeep.Of(f.Engine).UnblockRoutes) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			act := c.act(t, f)
			admit(t, f.Engine)
			for gateNotified(f) {
			}
			act()
			if !gateNotified(f) {
				t.Error("the gate was not notified")
			}
			wantClaimable(t, f, 1, "afterwards")
		})
	}
}

// A signal that SQL sends wakes the processes that listen, whose gate lets the execution in.
func TestSignalFromSQLRingsTheGate(t *testing.T) {
	f := fixture.NewCloned(t)
	created(t, f.Engine, kindOf(f, atOnce(1)), sync{})
	x := wantClaimable(t, f, 1, "the execution")[0]
	f.SuspendAgain(t, x.Lease, engine.Received("go"))
	conn, err := f.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "LISTEN ffx_gate"); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, "SELECT ffx_signal($1, 'go')", x.ID.String())
	if n, err := conn.Conn().WaitForNotification(t.Context()); err != nil || n.Payload != "changed" {
		t.Error(n, err)
	}
	wantClaimable(t, f, 1, "afterwards")
}

// Without a function to call, the maintenance's wakers do nothing, rather than end the process at the first notification. L18.
func TestWakersWithoutAFunctionDoNothing_L18(t *testing.T) {
	f := fixture.NewCloned(t)
	var stops []func()
	for _, on := range []func(func()) func(){upkeep.Of(f.Engine).OnEnded, upkeep.Of(f.Engine).OnGated, upkeep.Of(f.Engine).OnRescheduled} {
		stops = append(stops, on(nil))
	}
	kind := kindOf(f, atOnce(1))
	for range 2 {
		created(t, f.Engine, kind, sync{})
	}
	complete(t, f, wantClaimable(t, f, 1, "the first")...)
	if err := schedule.Put(t.Context(), f.Engine, schedule.Spec{Name: "s", Every: time.Hour, Execution: kind.Spec(sync{})}); err != nil {
		t.Fatal(err)
	}
	f.Flush()
	for _, stop := range stops {
		stop()
	}
}
