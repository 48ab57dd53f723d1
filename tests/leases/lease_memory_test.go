package leases

import (
	"context"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// throughHandle is a lease as another process, or this one, reads it from its handle.
func throughHandle(t *testing.T, l engine.Lease) engine.Lease {
	t.Helper()
	lease, err := engine.LeaseFromHandle(l.Handle(wire.HandleFresh))
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// A lease has no hidden state: one from a handle equals the claimed one, and the memory of the process serves both. A
// member is completed in as many statements, and the lease's timer is forgotten.
func TestLeaseFromHandleSettlesLikeTheClaimedOne(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	log := new(fixture.StatementLog)
	f.Engine = f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	statements := func(through func(engine.Lease) engine.Lease) int {
		f.Draw(t, nil, "a>b")
		c := f.ClaimOne(t)
		lease := through(c.Lease)
		if lease != c.Lease {
			t.Errorf("got %+v, want %+v", lease, c.Lease)
		}
		sent := len(log.During(func() {
			if err := f.CompleteExecution(t.Context(), lease, nil); err != nil {
				t.Fatal(err)
			}
		}))
		fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0)
		wantTimers(t, f.Fixture)
		f.SetExecution(t, c.ID, "flow_id = NULL") // the next claim does not take its dependents
		f.Exec(t, "DELETE FROM ffx_ready")
		return sent
	}
	claimed := statements(func(l engine.Lease) engine.Lease { return l })
	if handled := statements(func(l engine.Lease) engine.Lease { return throughHandle(t, l) }); handled != claimed {
		t.Errorf("completed in %d statements by a handle, in %d by the claimed lease", handled, claimed)
	}
	if strange := rivalStatements(t, f); strange <= claimed {
		t.Errorf("completed in %d statements by a process that remembers nothing, in %d by one that does", strange, claimed)
	}
}

// rivalStatements is how many statements another process needs to complete a member that this one claimed.
func rivalStatements(t *testing.T, f *fixture.Flows) int {
	t.Helper()
	log := new(fixture.StatementLog)
	rival := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	f.Draw(t, nil, "a>b")
	c := f.ClaimOne(t)
	return len(log.During(func() {
		if err := rival.CompleteExecution(t.Context(), throughHandle(t, c.Lease), nil); err != nil {
			t.Fatal(err)
		}
	}))
}

// A lease whose TTL is no whole number of milliseconds has the TTL of its handle.
func TestLeaseHoldsWholeMilliseconds(t *testing.T) {
	f := fixture.New(t)
	f.Create(t)
	spec := f.Worker()
	spec.LeaseTTL += 999
	claimed := f.ClaimNow(t, spec, 1)
	if got := throughHandle(t, claimed[0].Lease); got != claimed[0].Lease {
		t.Errorf("got %+v, want %+v", got, claimed[0].Lease)
	}
}

// Every way in which a lease ends or is lost, by the claimed lease and by one from a handle.
func TestLeaseFromHandleInEveryCall(t *testing.T) {
	calls := map[string]func(ctx context.Context, e *engine.Engine, l engine.Lease) error{
		"complete": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			return e.CompleteExecution(ctx, l, nil)
		},
		"fail": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.FailExecution(ctx, l, engine.Failure{})
			return err
		},
		"release": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			outcomes, err := e.ReleaseLeases(ctx, []engine.Lease{l})
			if err != nil {
				return err
			}
			return outcomes[0]
		},
		"renew": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.RenewLease(ctx, l, 0)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			claimed, handled := f.Start(t), f.Start(t)
			for _, l := range []engine.Lease{claimed.Lease, throughHandle(t, handled.Lease)} {
				for range 2 { // a repetition is answered as the call
					if err := call(t.Context(), f.Engine, l); err != nil {
						t.Error(err)
					}
				}
			}
			if a, b := f.Stored(t, claimed.ID), f.Stored(t, handled.ID); a.State != b.State {
				t.Errorf("in the state %v by the claimed lease, %v by the handle", a.State, b.State)
			}
			f.SetAttempt(t, handled.ID, 0, "lease_epoch = 9")
			one := call(t.Context(), f.Engine, throughHandle(t, handled.Lease))
			fixture.WantLeaseError(t, one, fferr.ErrStaleLease)
		})
	}
}
