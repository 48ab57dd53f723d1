package limits

import (
	"strings"
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

// Whatever takes work off a worker for long gives its place to the next execution, and rings the gate unless it has handed the
// place over itself. What only interrupts it keeps the place.
func TestPlacesAreGivenBack_B22_B26(t *testing.T) {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		act   func(t *testing.T, f *fixture.Fixture, c engine.Claimed)
		keeps bool
	}{
		{"complete", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) { complete(t, f, c) }, false},
		{"fail", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			if failed := f.Fail(t, c.Lease, engine.Failure{Class: policy.Permanent}); !failed.RetryAt.IsZero() {
				t.Fatal(failed)
			}
		}, false},
		{"retry after a pause", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) { f.Fail(t, c.Lease, engine.Failure{}) }, false},
		{"retry at once", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			f.RetryAtOnce(t, c.ID)
			f.Fail(t, c.Lease, engine.Failure{})
		}, true},
		{"cancel", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) { f.Cancel(t, c.ID) }, false},
		{"delay", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			must(t, f.DelayExecution(t.Context(), c.Lease, f.Time().Add(time.Hour)))
		}, false},
		{"a call", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			ok(f.Call(t.Context(), engine.CallSpec{
				Lease: c.Lease, Name: "part", Executions: []engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}},
			}))(t)
			ok(f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: c.Lease, Call: "part"}))(t)
		}, false},
		{"an operator's delay", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			f.RetryAtOnce(t, c.ID)
			f.Fail(t, c.Lease, engine.Failure{})
			must(t, operator.Delay(t.Context(), f.Engine, c.ID, f.Time().Add(time.Hour)))
		}, false},
		{"suspend", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			_, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: c.Lease, Condition: engine.Received("go")})
			must(t, err)
		}, false},
		{"expire", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			f.Advance(2 * time.Hour)
			f.Once(t, upkeep.Of(f.Engine).ExpireDeadlines)
		}, false},
		{"lose the lease", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			f.Advance(2 * fixture.LeaseTTL)
			f.Once(t, upkeep.Of(f.Engine).ExpireLeases)
		}, true},
		{"block", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			f.Advance(2 * fixture.LeaseTTL)
			f.Once(t, upkeep.Of(f.Engine).ExpireLeases)
			f.SetExecution(t, c.ID, "lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting', blocking_reason = 'waiting_for_worker', ownership_state = 'unowned'")
			f.Block(t, c.ID, state.PausedByOperator, "")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1})
			first := create(t, f, 1, under(q), func(s *engine.ExecutionSpec) { s.Deadline = f.Time().Add(time.Hour) })[0]
			second := create(t, f, 1, under(q))[0]
			running := wantClaimable(t, f, 1, "at first")[0]
			if running.ID != first {
				t.Fatalf("claimed %s, want %s", running.ID, first)
			}
			for gateNotified(f) {
			}
			c.act(t, f, running)
			handedOver := !strings.Contains(f.Stored(t, second).State, "rate_limited")
			if !gateNotified(f) && !handedOver && !c.keeps {
				t.Error("did not ring the gate")
			}
			admit(t, f.Engine)
			waits := strings.Contains(f.Stored(t, second).State, "rate_limited")
			if waits != c.keeps {
				t.Errorf("the next execution waits: %v, want %v", waits, c.keeps)
			}
		})
	}
}

// An execution that gave its place back asks again, and takes one place.
func TestPlaceIsTakenAgain(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2})
	create(t, f, 3, under(q))
	running := wantClaimable(t, f, 2, "at first")
	for _, c := range running {
		if err := f.DelayExecution(t.Context(), c.Lease, f.Time().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	third := wantClaimable(t, f, 1, "while two are delayed")
	f.Advance(time.Second)
	f.Once(t, upkeep.Of(f.Engine).PromoteDelayed)
	running = append(third, wantClaimable(t, f, 1, "beside the third")...)
	wantClaimable(t, f, 0, "when all places are taken")
	complete(t, f, running[0])
	running = append(running[1:], wantClaimable(t, f, 1, "after an end")...)
	complete(t, f, running...)
}

// A block for a budget or a quota withdraws the admission, and an operator's unblock lets the execution pass the gate by.
func TestOperatorsBlockAndOverride(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1})
	ids := create(t, f, 2, under(q))
	admit(t, f.Engine)
	f.Block(t, ids[0], state.WaitingForQuota, "")
	// It is first in the order of claims, so it is admitted again.
	if claimed := wantClaimable(t, f, 1, "after the block"); claimed[0].ID != ids[0] {
		t.Errorf("claimed %s, want %s", claimed[0].ID, ids[0])
	}
	f.Unblock(t, ids[1], state.WaitingForQuota)
	if claimed := wantClaimable(t, f, 1, "after the unblock"); claimed[0].ID != ids[1] {
		t.Errorf("claimed %s, want %s", claimed[0].ID, ids[1])
	}
}

// Several limits admit all at once or not at all: an execution that waits for one holds nothing of the others, and leaves
// their room to others.
func TestSeveralLimitsAdmitTogether(t *testing.T) {
	f := fixture.NewCloned(t)
	narrow, wide := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1}), quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2})
	both := create(t, f, 3, under(narrow))
	for _, x := range both {
		f.SetExecution(t, x, "ffx_limit_ids = ARRAY['"+wide.String()+"', '"+narrow.String()+"']::uuid[], ffx_gate_id = '"+wide.String()+"'")
	}
	create(t, f, 3, under(wide))
	running := wantClaimable(t, f, 2, "at first")
	wantWaiting := func(q id.QuotaPolicyID, want int) {
		t.Helper()
		if got := len(fixture.Texts(t, f.Pool, "SELECT 'x' FROM ff_exec_core WHERE ffx_gate_id = $1", q)); got != want {
			t.Errorf("%d wait at %s, want %d", got, q, want)
		}
	}
	wantWaiting(narrow, 2) // so they leave a place of the other limit to work that names only that
	complete(t, f, running...)
	for left := 4; left > 0; {
		running = claim(t, f, 10)
		if len(running) == 0 {
			if admit(t, f.Engine); len(fixture.Texts(t, f.Pool, "SELECT 'x' FROM ff_exec_core WHERE ffx_admitted")) == 0 {
				t.Fatal("none is admitted although there is room")
			}
			continue
		}
		if len(running) > 2 {
			t.Fatalf("%d run at once", len(running))
		}
		complete(t, f, running...)
		left -= len(running)
	}
}
