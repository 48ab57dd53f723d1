package executions

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// uniqueEnd is a way in which an execution ends.
type uniqueEnd struct {
	name   string
	public state.PublicState
	end    func(t *testing.T, f *fixture.Fixture, x id.ExecutionID)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func failFor(t *testing.T, f *fixture.Fixture, class policy.Class) {
	t.Helper()
	_, err := f.FailExecution(t.Context(), f.ClaimOne(t).Lease, engine.Failure{Message: "declined", Class: class})
	must(t, err)
}

func cancelled(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
	t.Helper()
	must(t, f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}))
}

// timedOut ends a wait at its timeout.
func timedOut(effect engine.OnTimeout) func(*testing.T, *fixture.Fixture, id.ExecutionID) {
	return func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) {
		f.SuspendAgain(t, f.ClaimOne(t).Lease, engine.Received("paid"), func(s *engine.SuspendSpec) { s.OnTimeout, s.Timeout = effect, time.Second })
		f.Advance(time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
	}
}

// uniqueEnds has each end of an execution with one retry, an attempt timeout of 10 s and a deadline in two hours.
var uniqueEnds = []uniqueEnd{
	{"completed", state.PublicCompleted, func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) {
		must(t, f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil))
	}},
	{"completed after a retry", state.PublicCompleted, func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) {
		failFor(t, f, policy.Transient)
		f.Advance(time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
		must(t, f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil))
	}},
	{"failed for good", state.PublicFailed, func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) { failFor(t, f, policy.Permanent) }},
	{"failed after its retries", state.PublicFailed, func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) {
		failFor(t, f, policy.Transient)
		f.Advance(time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
		failFor(t, f, policy.Transient)
	}},
	{"attempts timed out", state.PublicExpired, func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) {
		failFor(t, f, policy.Transient)
		f.Advance(time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
		f.ClaimOne(t)
		f.Advance(10 * time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
	}},
	{"expired while it waits", state.PublicExpired, func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) {
		f.Advance(2 * time.Hour)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
	}},
	{"a wait failed", state.PublicFailed, timedOut(engine.FailOnTimeout)},
	{"a wait expired", state.PublicExpired, timedOut(engine.ExpireOnTimeout)},
	{"a wait was cancelled", state.PublicCancelled, timedOut(engine.CancelOnTimeout)},
	{"cancelled while it waits", state.PublicCancelled, cancelled},
	{"cancelled while it runs", state.PublicCancelled, func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
		f.ClaimOne(t)
		cancelled(t, f, x)
	}},
	{"replayed and completed", state.PublicCompleted, func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
		failFor(t, f, policy.Permanent)
		_, err := operator.Replay(t.Context(), f.Engine, x)
		must(t, err)
		must(t, f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil))
	}},
}

// After each end an execution has its key by its rule until it is deleted, for a creation of one statement and for one of
// several.
func TestUniqueWhileAfterEachEnd(t *testing.T) {
	for while, keeps := range map[engine.UniqueWhile][]state.PublicState{
		engine.WhileWaiting:    nil,
		engine.WhileUnfinished: nil,
		engine.WhileUnfailed:   {state.PublicCompleted},
		engine.WhileKept:       {state.PublicCompleted, state.PublicFailed, state.PublicExpired, state.PublicCancelled},
	} {
		for _, c := range uniqueEnds {
			t.Run(string(while)+" "+c.name, func(t *testing.T) {
				f := fixture.NewCloned(t)
				spec := uniqueSpec(f, `{"order":1}`, func(u *engine.Unique) { u.While = while })
				spec.Policy = &policy.Execution{
					Retry: &policy.Retry{MaxRetries: 1, Backoff: policy.Fixed(time.Second)}, AttemptTimeout: 10 * time.Second, Deadline: 2 * time.Hour,
				}
				x := wantNew(t, create(t, f.Engine, spec))
				c.end(t, f, x)
				if s, err := f.DescribeExecution(t.Context(), x); err != nil || s.State.Public != c.public {
					t.Fatalf("%s, %v; want %s", s.State.Public, err, c.public)
				}
				keyed, tx := spec, f.BeginTx(t)
				keyed.IdempotencyKey = f.Key("1")
				again := create(t, f.WithTx(tx), keyed)
				f.End(t, tx, false)
				if slices.Contains(keeps, c.public) {
					wantDuplicate(t, again, x)
					wantDuplicate(t, create(t, f.Engine, spec), x)
					f.Advance(fixture.Week + 1)
					f.Retain(t)
				} else {
					wantNew(t, again)
				}
				wantNew(t, create(t, f.Engine, spec))
			})
		}
	}
}

// A completed execution that is unfailed stays as it is, in the way of a creation that would cancel it.
func TestCancelExistingKeepsACompletedOne(t *testing.T) {
	f := fixture.New(t)
	spec := uniqueSpec(f, `{"order":1}`, ifTaken(engine.CancelExisting), while(engine.WhileUnfailed))
	first := create(t, f.Engine, spec)
	second := create(t, f.Engine, spec)
	if wantNew(t, second); second.Cancelled != first.ID {
		t.Errorf("created %+v, want %s to be cancelled", second, first.ID)
	}
	must(t, f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil))
	wantDuplicate(t, create(t, f.Engine, spec), second.ID)
}

// An execution that fails in a transaction has its key until the commit.
func TestUnfailedHolderFailsBesideACreator(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(map[bool]string{true: "commits", false: "rolls back"}[commits], func(t *testing.T) {
			f := fixture.New(t)
			spec := uniqueSpec(f, `{"order":1}`, while(engine.WhileUnfailed))
			x := wantNew(t, create(t, f.Engine, spec))
			lease, tx := f.ClaimOne(t).Lease, f.BeginTx(t)
			_, err := f.WithTx(tx).FailExecution(t.Context(), lease, engine.Failure{Message: "declined", Class: policy.Permanent})
			must(t, err)
			wantDuplicate(t, create(t, f.Engine, spec), x)
			f.End(t, tx, commits)
			if created := create(t, f.Engine, spec); commits {
				wantNew(t, created)
			} else {
				wantDuplicate(t, created, x)
			}
		})
	}
}

// A failed execution whose key another one has, which has completed, is refused to run again, alone and in bulk. The
// others run.
func TestReplayBesideACompletedOne(t *testing.T) {
	f := fixture.New(t)
	failed := func(order string) id.ExecutionID {
		x := wantNew(t, create(t, f.Engine, uniqueSpec(f, order, while(engine.WhileUnfailed))))
		failFor(t, f, policy.Permanent)
		return x
	}
	x, free := failed("1"), failed("2")
	y := wantNew(t, create(t, f.Engine, uniqueSpec(f, "1", while(engine.WhileUnfailed))))
	must(t, f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil))
	_, err := operator.Replay(t.Context(), f.Engine, x)
	if conflict, ok := errors.AsType[*fferr.KeyConflictError](err); !ok || conflict.Existing != y {
		t.Errorf("got %v, want a conflict with %s", err, y)
	}
	done, err := operator.ReplayWhere(t.Context(), f.Engine, engine.ExecutionFilter{Lane: f.Lane, State: state.PublicFailed}, operator.Bulk{})
	if err != nil || done.Changed != 1 || done.Refused != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if s, err := f.DescribeExecution(t.Context(), free); err != nil || s.State.Public != state.PublicWaiting {
		t.Errorf("%s, %v", s.State.Public, err)
	}
}
