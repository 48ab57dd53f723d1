package steps

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A called execution whose last attempt has taken too long lets its caller continue.
func TestCallTimesOut(t *testing.T) {
	c := calling(t, 1, fixture.TimingOutAfter(time.Minute, &policy.Retry{MaxRetries: policy.NoRetries}))
	c.wait(t)
	c.ClaimOne(t)
	c.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(c.Engine).ExpireAttempts, 1)
	c.resume(t, 1)
	c.WantState(t, c.ID, fixture.StateResumable)
	results, err := c.CalledResults(t.Context(), c.called)
	ended, _ := errors.AsType[*fferr.EndedError](results[0].Err)
	if err != nil || ended == nil || ended.Outcome != state.OutcomeExpired {
		t.Errorf("%+v, error %v", results, err)
	}
}

// A called execution that fails and is replayed before its caller looks keeps the caller waiting, until the second end.
func TestCallIsReplayedWhileItsCallerWaits(t *testing.T) {
	c := calling(t, 1)
	c.wait(t)
	c.Fail(t, c.ClaimOne(t).Lease, fixture.ForGood)
	c.Replay(t, c.called[0])
	c.resume(t, 1) // the note of the first end
	c.WantState(t, c.ID, fixture.StateSuspended)
	c.finish(t)
	c.resume(t, 1)
	c.WantState(t, c.ID, fixture.StateResumable)
}

// A called execution that was deleted by hand counts as ended: its caller continues and reads ErrPruned.
func TestCallIsDeleted(t *testing.T) {
	c := calling(t, 2)
	c.wait(t)
	c.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", c.called[0].UUID())
	c.finish(t)
	c.resume(t, 1)
	c.WantState(t, c.ID, fixture.StateResumable)
	results, err := c.CalledResults(t.Context(), c.called)
	if err != nil || !errors.Is(results[0].Err, fferr.ErrPruned) || results[1].Err != nil {
		t.Errorf("%+v, error %v", results, err)
	}
}

// A caller whose own wait times out runs again, and may wait for the call once more.
func TestCallerTimesOutWhileItWaits(t *testing.T) {
	c := calling(t, 1)
	if _, err := c.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: c.Lease, Call: "parts", Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(c.Engine).ExpireWaits, 1)
	c.WantState(t, c.ID, fixture.StateResumable)
	for c.Claimed = c.ClaimOne(t); c.Claimed.ID == c.called[0]; { // it may be the first on the lane
		c.Claimed = c.ClaimOne(t)
	}
	c.wait(t)
	c.WantState(t, c.ID, fixture.StateSuspended)
	c.Cancel(t, c.called[0])
	c.resume(t, 1)
	c.WantState(t, c.ID, fixture.StateResumable)
}

// A caller that was cancelled while it waited is replayed: it keeps its call, or makes another one from that step on.
func TestCallerIsReplayed(t *testing.T) {
	for _, test := range []struct {
		name  string
		how   []operator.ReplayOption
		steps int
	}{
		{"with its steps", nil, 1},
		{"from the call", []operator.ReplayOption{operator.ReplayFromStep("parts")}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := calling(t, 1)
			c.wait(t)
			c.Cancel(t, c.ID)
			c.Cancel(t, c.called[0])
			if _, err := operator.Replay(t.Context(), c.Fixture.Engine, c.ID, test.how...); err != nil {
				t.Fatal(err)
			}
			steps, err := c.Steps(t.Context(), c.ID)
			if err != nil || len(steps) != test.steps {
				t.Fatalf("%+v, error %v", steps, err)
			}
			c.Claimed = c.ClaimOne(t)
			former := c.called[0]
			if c.called = c.call(t, 1); (c.called[0] == former) != (test.steps == 1) {
				t.Errorf("called %v after %s", c.called, former)
			}
			c.wait(t)
			if test.steps == 1 { // it has ended
				c.WantState(t, c.ID, fixture.StateResumable)
				return
			}
			c.resume(t, 1) // the note of the former call
			c.WantState(t, c.ID, fixture.StateSuspended)
			c.finish(t)
			c.resume(t, 1)
			c.WantState(t, c.ID, fixture.StateResumable)
		})
	}
}

// The end of a called execution ends no other wait of its caller: one that waits for an approval goes on waiting.
func TestEndsOfCallsEndNoOtherWait(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	if _, err := f.Call(t.Context(), engine.CallSpec{
		Lease: l, Name: "part", Executions: []engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}},
	}); err != nil {
		t.Fatal(err)
	}
	f.SuspendAgain(t, l, engine.Received("approved"))
	if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.Once(t, upkeep.Of(f.Engine).ResumeCallers)
	f.WantState(t, l.Execution, fixture.StateSuspended)
	f.Signal(t, l, "approved")
	if c := f.ClaimOne(t); c.ID != l.Execution {
		t.Errorf("claimed %s", c.ID)
	}
}
