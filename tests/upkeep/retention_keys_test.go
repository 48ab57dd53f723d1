package upkeep

import (
	"context"
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func withOrder(number string) func(*engine.ExecutionSpec) {
	return func(s *engine.ExecutionSpec) { s.BusinessKey = id.BusinessKey{Name: "order", Value: number} }
}

func wantKeys(t *testing.T, f *fixture.Fixture, want ...string) {
	t.Helper()
	got := fixture.Texts(t, f.Pool, "SELECT name || '=' || value FROM ffx_business_key ORDER BY 1")
	if len(got) != len(want) {
		t.Errorf("keys %q, want %q", got, want)
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("keys %q, want %q", got, want)
		}
	}
}

// Retention deletes a business key with its execution, and then the key is free. Other keys stay.
func TestRetentionFreesBusinessKeys(t *testing.T) {
	f := trimmingFixture(t)
	old := f.Ended(t, withOrder("1"))
	f.Ended(t)
	f.Advance(fixture.Week / 2)
	f.Ended(t, withOrder("2"))
	f.Advance(fixture.Week/2 + 1)
	f.Retain(t)
	f.WantKept(t, "gone", old)
	wantKeys(t, f, "order=2")
	again := f.Create(t, withOrder("1"))
	if found, err := f.FindExecutionByKey(t.Context(), "order", "1"); found != again || err != nil {
		t.Errorf("found %s, %v; want %s", found, err, again)
	}
	wantKeys(t, f, "order=1", "order=2")
}

// A purge deletes the keys of a flow and of its members.
func TestPurgeFreesBusinessKeys(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	f.Retain(t)
	spec := fixture.Chart(nil, "a>b")
	spec.BusinessKey = id.BusinessKey{Name: "batch", Value: "1"}
	withOrder("1")(&spec.Nodes[0].Spec)
	flow := f.NewFlowOf(t, spec)
	f.Create(t, withOrder("2"))
	f.Succeed(t, flow, "a")
	f.Succeed(t, flow, "b")
	wantKeys(t, f.Fixture, "batch=1", "order=1", "order=2")
	f.Advance(fixture.Week + 1)
	f.Retain(t)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, false)
	wantKeys(t, f.Fixture, "order=2")
	spec.ID = id.NewFlowID()
	f.NewFlowOf(t, spec)
}

// A creation with the key of an execution that retention is deleting waits for it: it wins after the commit, and is
// refused after a rollback.
func TestRetentionRacesACreationWithTheKey(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(map[bool]string{true: "commits", false: "rolls back"}[commits], func(t *testing.T) {
			f := trimmingFixture(t)
			f.Retain(t)
			old := f.Ended(t, withOrder("1"))
			f.Advance(fixture.Week + 1)
			late := f.Rival(t)
			tx := f.BeginTx(t)
			if n, err := upkeep.Of(f.WithTx(tx)).Retain(t.Context(), 100); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			spec := engine.ExecutionSpec{Kind: "test", Lane: f.Lane}
			withOrder("1")(&spec)
			wait := fixture.Async(t, func(ctx context.Context) fferr.Outcome[engine.Created] {
				created, err := late.CreateExecution(ctx, spec)
				return fferr.Outcome[engine.Created]{Value: created, Err: err}
			})
			late.AwaitBlocked(t, f)
			f.End(t, tx, commits)
			created := wait()
			want := created.Value.ID
			if !commits {
				want = old
				if conflict, ok := errors.AsType[*fferr.KeyConflictError](created.Err); !ok || conflict.Existing != old {
					t.Errorf("created %+v", created)
				}
			} else if created.Err != nil {
				t.Errorf("created %+v", created)
			}
			if found, err := f.FindExecutionByKey(t.Context(), "order", "1"); found != want || err != nil || want == (id.ExecutionID{}) {
				t.Errorf("found %s, %v; want %s", found, err, want)
			}
		})
	}
}

// Retention frees the key of unique work that is kept, with its execution.
func TestRetentionFreesUniqueKeys(t *testing.T) {
	f := trimmingFixture(t)
	kept := func(s *engine.ExecutionSpec) { s.Unique = &engine.Unique{While: engine.WhileKept} }
	old := f.Ended(t, kept)
	again := func() engine.Created {
		t.Helper()
		spec := engine.ExecutionSpec{Kind: "test", Lane: f.Lane}
		kept(&spec)
		created, err := f.CreateExecution(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	if created := again(); !created.Duplicate || created.ID != old {
		t.Errorf("created %+v, want a duplicate of %s", created, old)
	}
	f.Advance(fixture.Week + 1)
	f.Retain(t)
	f.WantKept(t, "gone", old)
	if keys := fixture.Texts(t, f.Pool, "SELECT key::text FROM ffx_unique"); len(keys) != 0 {
		t.Errorf("keys %q are left", keys)
	}
	if created := again(); created.Duplicate {
		t.Errorf("created %+v, want a new one", created)
	}
}
