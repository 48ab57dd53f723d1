package steps

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// caller is a claimed execution that has called others, which wait to be claimed.
type caller struct {
	*fixture.Fixture
	engine.Claimed
	called []id.ExecutionID
}

// calling starts an execution that calls n others, on a database of its own.
func calling(t *testing.T, n int, change ...func(*engine.ExecutionSpec)) *caller {
	t.Helper()
	f := fixture.NewCloned(t)
	c := &caller{Fixture: f, Claimed: f.Start(t)}
	c.called = c.call(t, n, change...)
	return c
}

func (c *caller) call(t *testing.T, n int, change ...func(*engine.ExecutionSpec)) []id.ExecutionID {
	t.Helper()
	spec := engine.ExecutionSpec{Lane: c.Lane, Kind: "called"}
	for _, with := range change {
		with(&spec)
	}
	called, err := c.Engine.Call(t.Context(), engine.CallSpec{Lease: c.Lease, Name: "parts", Executions: slices.Repeat([]engine.ExecutionSpec{spec}, n)})
	if err != nil {
		t.Fatal(err)
	}
	return called
}

// wait suspends the caller until the called executions have ended.
func (c *caller) wait(t *testing.T) {
	t.Helper()
	if _, err := c.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: c.Lease, Call: "parts"}); err != nil {
		t.Fatal(err)
	}
}

// finish completes one called execution.
func (c *caller) finish(t *testing.T) {
	t.Helper()
	claimed := c.ClaimOne(t)
	if !slices.Contains(c.called, claimed.ID) {
		t.Fatalf("claimed %s, which is not called", claimed.ID)
	}
	if err := c.CompleteExecution(t.Context(), claimed.Lease, []byte("done")); err != nil {
		t.Fatal(err)
	}
}

func (c *caller) notes(t *testing.T) int {
	t.Helper()
	return len(fixture.Texts(t, c.Pool, "SELECT step FROM ffx_call_end"))
}

func (c *caller) resume(t *testing.T, want int) {
	t.Helper()
	fixture.Run(t, upkeep.Of(c.Engine).ResumeCallers, want)
}

// A repeated call finds the executions of the first, also in another attempt.
func TestCallIsRepeated(t *testing.T) {
	c := calling(t, 3)
	if again := c.call(t, 2); !slices.Equal(again, c.called) {
		t.Errorf("%v, want %v", again, c.called)
	}
	if n := c.CountOnLane(t); n != 4 {
		t.Errorf("%d executions, want 4", n)
	}
	steps, err := c.Steps(t.Context(), c.ID)
	if err != nil || len(steps) != 1 || steps[0].Outcome != engine.StepCalled || !slices.Equal(steps[0].Called, c.called) {
		t.Errorf("%+v, error %v", steps, err)
	}
	if tag, _, err := c.ExecutionTag(t.Context(), c.called[0], engine.CallerTag); tag != c.ID.String() || err != nil {
		t.Errorf("tag %q, error %v", tag, err)
	}
	if err := c.ReleaseLease(t); err != nil {
		t.Fatal(err)
	}
	_, err = c.Engine.Call(t.Context(), engine.CallSpec{Lease: c.Lease, Name: "late", Executions: []engine.ExecutionSpec{{Kind: "called"}}})
	if _, refused := errors.AsType[*fferr.LeaseError](err); !refused || c.CountOnLane(t) != 4 {
		t.Errorf("a former holder: %v, %d executions", err, c.CountOnLane(t))
	}
}

// ReleaseLease releases the caller's lease.
func (c *caller) ReleaseLease(t *testing.T) error {
	outcomes, err := c.ReleaseLeases(t.Context(), []engine.Lease{c.Lease})
	return errors.Join(append(outcomes, err)...)
}

// The last called execution ends before, while and after the caller begins to wait: it continues each time, once.
func TestCallerContinuesAfterTheLastEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, c *caller)
	}{
		{"before the wait", func(t *testing.T, c *caller) {
			c.finish(t)
			c.finish(t)
			c.wait(t)
			c.WantState(t, c.ID, fixture.StateResumable)
			c.resume(t, 2)
		}},
		{"before the wait, noted too", func(t *testing.T, c *caller) {
			c.finish(t)
			c.finish(t)
			c.resume(t, 2)
			c.wait(t)
		}},
		{"one before the wait", func(t *testing.T, c *caller) {
			c.finish(t)
			c.resume(t, 1)
			c.wait(t)
			c.finish(t)
			c.WantState(t, c.ID, fixture.StateSuspended)
			c.resume(t, 1)
		}},
		{"both during the wait", func(t *testing.T, c *caller) {
			c.wait(t)
			c.finish(t)
			c.resume(t, 1)
			c.WantState(t, c.ID, fixture.StateSuspended)
			c.finish(t)
			c.resume(t, 1)
		}},
		{"between a check and the end of its transaction", func(t *testing.T, c *caller) {
			c.finish(t)
			tx := c.BeginTx(t)
			if _, err := c.WithTx(tx).Suspend(t.Context(), engine.SuspendSpec{Lease: c.Lease, Call: "parts"}); err != nil {
				t.Fatal(err)
			}
			claimed := c.ClaimOne(t)
			if err := c.CompleteExecution(t.Context(), claimed.Lease, nil); err != nil {
				t.Fatal(err)
			}
			c.resume(t, 0) // the caller is locked, so the notes stay
			fixture.Commit(t, tx)
			c.WantState(t, c.ID, fixture.StateSuspended)
			c.resume(t, 2)
		}},
		{"in a transaction that was begun before the wait", func(t *testing.T, c *caller) {
			c.finish(t)
			claimed := c.ClaimOne(t)
			tx := c.BeginTx(t)
			if err := c.WithTx(tx).CompleteExecution(t.Context(), claimed.Lease, nil); err != nil {
				t.Fatal(err)
			}
			c.resume(t, 1)
			c.wait(t)
			c.WantState(t, c.ID, fixture.StateSuspended)
			fixture.Commit(t, tx)
			c.resume(t, 1)
		}},
		{"while an operator resumes the caller", func(t *testing.T, c *caller) {
			c.wait(t)
			c.finish(t)
			last := c.ClaimOne(t)
			if err := c.Resume(t.Context(), c.ID, 0); err != nil {
				t.Fatal(err)
			}
			if err := c.CompleteExecution(t.Context(), last.Lease, nil); err != nil {
				t.Fatal(err)
			}
			c.resume(t, 2)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := calling(t, 2)
			test.run(t, c)
			if got := c.Stored(t, c.ID).State; !strings.HasPrefix(got, "runnable unowned eligible_now ") {
				t.Errorf("the caller is stored as %s", got)
			}
			if n := c.notes(t); n != 0 {
				t.Errorf("%d notes are left", n)
			}
			again := c.ClaimOne(t)
			if again.ID != c.ID || again.Lease.Attempt != c.Lease.Attempt || !again.Resumed {
				t.Errorf("%+v", again)
			}
		})
	}
}

// However a called execution ends, its caller continues and reads how.
func TestEveryEndOfACallIsNoted(t *testing.T) {
	t.Parallel()
	job := func(act func(context.Context, int) (int, error)) func(*testing.T, *caller) {
		return func(t *testing.T, c *caller) { fixture.Run(t, act, 1) }
	}
	for _, test := range []struct {
		name string
		with func(*engine.ExecutionSpec)
		end  func(t *testing.T, c *caller)
		want state.TerminalOutcome
	}{
		{"success", nil, func(t *testing.T, c *caller) { c.finish(t) }, state.OutcomeSuccess},
		{"failure", nil, func(t *testing.T, c *caller) {
			claimed := c.ClaimOne(t)
			c.Fail(t, claimed.Lease, engine.Failure{Message: "broken", Class: "permanent"})
		}, state.OutcomeFailed},
		{"cancel", nil, func(t *testing.T, c *caller) { c.Cancel(t, c.called[0]) }, state.OutcomeCancelled},
		{"deadline", func(s *engine.ExecutionSpec) { s.Deadline = time.Now().Add(time.Millisecond) }, func(t *testing.T, c *caller) {
			c.Advance(time.Hour)
			job(upkeep.Of(c.Engine).ExpireDeadlines)(t, c)
		}, state.OutcomeExpired},
	} {
		t.Run(test.name, func(t *testing.T) {
			var change []func(*engine.ExecutionSpec)
			if test.with != nil {
				change = append(change, test.with)
			}
			c := calling(t, 1, change...)
			c.wait(t)
			test.end(t, c)
			c.resume(t, 1)
			c.WantState(t, c.ID, fixture.StateResumable)
			results, err := c.CalledResults(t.Context(), c.called)
			if err != nil || len(results) != 1 {
				t.Fatal(results, err)
			}
			ended, _ := errors.AsType[*fferr.EndedError](results[0].Err)
			if test.want == state.OutcomeSuccess {
				if results[0].Err != nil || string(results[0].Result) != "done" {
					t.Errorf("%+v", results[0])
				}
			} else if ended == nil || ended.Outcome != test.want || ended.Execution != c.called[0] {
				t.Errorf("%+v, want %s", results[0], test.want)
			}
		})
	}
}

// A called execution that ends for the second time, after a replay, lets its caller continue again.
func TestReplayedCall(t *testing.T) {
	c := calling(t, 1)
	claimed := c.ClaimOne(t)
	c.Fail(t, claimed.Lease, engine.Failure{Message: "broken", Class: "permanent"})
	c.Replay(t, c.called[0])
	c.wait(t)
	c.WantState(t, c.ID, fixture.StateSuspended)
	c.resume(t, 1)
	c.WantState(t, c.ID, fixture.StateSuspended)
	c.finish(t)
	c.resume(t, 1)
	c.WantState(t, c.ID, fixture.StateResumable)
}

// A caller that was cancelled, or no longer exists, is forgotten. What it has called goes on.
func TestCallerIsGone(t *testing.T) {
	c := calling(t, 2)
	c.wait(t)
	c.Cancel(t, c.ID)
	c.finish(t)
	c.resume(t, 1)
	c.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", c.ID.UUID())
	c.finish(t)
	c.resume(t, 1)
	if n := c.notes(t); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// A wait for a call is shown in words, and takes no signals.
func TestWaitForACallIsShown(t *testing.T) {
	c := calling(t, 1)
	c.wait(t)
	waits, err := c.ListWaits(t.Context(), engine.WaitFilter{}, "", 10)
	if err != nil || len(waits.Items) != 1 || waits.Items[0].Asked != "call parts" {
		t.Fatalf("%+v, error %v", waits, err)
	}
	if effect := c.Signal(t, c.Lease, "any"); effect != string(engine.SignalBuffered) {
		t.Errorf("a signal: %s", effect)
	}
	c.WantState(t, c.ID, fixture.StateSuspended)
}

func TestCallInputs(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	one := engine.ExecutionSpec{Lane: f.Lane, Kind: "called"}
	keyed := one
	keyed.IdempotencyKey = "k"
	for name, spec := range map[string]engine.CallSpec{
		"no name":    {Lease: l, Executions: []engine.ExecutionSpec{one}},
		"none":       {Lease: l, Name: "a"},
		"too many":   {Lease: l, Name: "a", Executions: slices.Repeat([]engine.ExecutionSpec{one}, engine.MaxCalls+1)},
		"key":        {Lease: l, Name: "a", Executions: []engine.ExecutionSpec{keyed}},
		"seq":        {Lease: l, Name: "a", Seq: engine.MaxSteps, Executions: []engine.ExecutionSpec{one}},
		"bad member": {Lease: l, Name: "a", Executions: []engine.ExecutionSpec{one, {Lane: f.Lane}}},
	} {
		if _, err := f.Engine.Call(t.Context(), spec); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wait := engine.SuspendSpec{Lease: l, Call: "a", Condition: engine.OperatorOnly()}
	if err := wait.Validate(); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a call and a condition: %v", err)
	}
	if n := f.CountOnLane(t); n != 1 {
		t.Errorf("%d executions, want the caller alone", n)
	}
	wantSteps(t, f.Engine, l.Execution)
}
