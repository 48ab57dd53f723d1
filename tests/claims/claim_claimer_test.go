package claims

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// claimAll claims n at a time until everything on the lane is claimed, and returns it in the order it came. A claimer
// may hide executions before its positions for a moment; it loses none.
func claimAll(t *testing.T, claimer *engine.Claimer, n, total int) []id.ExecutionID {
	t.Helper()
	var got []id.ExecutionID
	fixture.Await(t, fmt.Sprintf("%d executions to be claimed", total), func() bool {
		claimed, err := claimer.Claim(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fixture.ExecutionsOf(claimed)...)
		return len(got) >= total
	})
	return got
}

func TestClaimerKeepsLaneOrder(t *testing.T) {
	f := fixture.New(t)
	var want []id.ExecutionID
	for priority := 3; priority > 0; priority-- {
		for range 5 {
			want = append(want, f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = priority }))
		}
	}
	if got := claimAll(t, f.Claimer(t), 4, len(want)); !slices.Equal(got, want) {
		t.Errorf("claimed\n%v, want\n%v", got, want)
	}
}

func TestClaimerFindsWorkBeforeItsPositions(t *testing.T) {
	at := func(priority int, age time.Duration) func(*engine.ExecutionSpec) {
		return func(spec *engine.ExecutionSpec) { spec.Priority, spec.CreatedAt = priority, fixture.Start.Add(-age) }
	}
	for _, c := range []struct {
		name         string
		before, late []func(*engine.ExecutionSpec)
	}{
		{"older work of the same priority", slices.Repeat([]func(*engine.ExecutionSpec){at(1, 0)}, 4), []func(*engine.ExecutionSpec){at(1, time.Hour)}},
		{"a higher priority", slices.Repeat([]func(*engine.ExecutionSpec){at(1, 0)}, 4), []func(*engine.ExecutionSpec){at(2, 0)}},
		{"a lower priority", slices.Repeat([]func(*engine.ExecutionSpec){at(1, 0)}, 4), []func(*engine.ExecutionSpec){at(0, 0)}},
		{
			"several priorities, before, between and after",
			[]func(*engine.ExecutionSpec){at(5, 0), at(3, 0), at(3, 0), at(1, 0)},
			[]func(*engine.ExecutionSpec){at(9, time.Hour), at(5, time.Hour), at(4, 0), at(3, time.Hour), at(1, time.Hour), at(0, 0)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			claimer := f.Claimer(t)
			want := map[id.ExecutionID]bool{}
			for _, change := range c.before {
				want[f.Create(t, change)] = true
			}
			got := claimAll(t, claimer, 2, 2)
			for _, change := range c.late {
				want[f.Create(t, change)] = true
			}
			claimer.Wake()
			got = append(got, claimAll(t, claimer, 2, len(want)-2)...)
			for _, x := range got {
				if !want[x] {
					t.Errorf("%s was claimed twice or is not of this test", x)
				}
				delete(want, x)
			}
			if len(want) > 0 {
				t.Errorf("%v were not claimed", want)
			}
		})
	}
}

// Returned executions are before the positions of the claimer that claimed them.
func TestClaimerFindsReturnedWork(t *testing.T) {
	f := fixture.New(t)
	claimer := f.Claimer(t)
	for range 3 {
		f.Create(t)
	}
	claimed, err := claimer.Claim(t.Context(), 2)
	if err != nil || len(claimed) != 2 {
		t.Fatal(claimed, err)
	}
	if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{claimed[0].Lease}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	if got := claimAll(t, claimer, 2, 2); !slices.Contains(got, claimed[0].ID) {
		t.Errorf("claimed %v, want %s among them", got, claimed[0].ID)
	}
}

// Of two creations the one that began first is committed last, before the position by then. A claimer that is woken
// finds it with its next claim, also right after a fruitless full scan.
func TestClaimerFindsLateCommitsImmediately(t *testing.T) {
	f := fixture.New(t)
	claimer := f.Claimer(t)
	claim := func(want id.ExecutionID) {
		t.Helper()
		claimer.Wake()
		claimed, err := claimer.Claim(t.Context(), 5)
		if got := fixture.ExecutionsOf(claimed); err != nil || !slices.Equal(got, []id.ExecutionID{want}) {
			t.Fatalf("claimed %v, error %v, want %s", got, err, want)
		}
	}
	claim(f.Create(t)) // registers the lane
	for range 20 {
		tx := f.BeginTx(t)
		late, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, CreatedAt: fixture.Start.Add(-10 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		claim(f.Create(t, func(spec *engine.ExecutionSpec) { spec.CreatedAt = fixture.Start }))
		for range 3 { // one of them is a fruitless full scan
			if claimed, err := claimer.Claim(t.Context(), 5); err != nil || len(claimed) > 0 {
				t.Fatal(fixture.ExecutionsOf(claimed), err)
			}
		}
		fixture.Commit(t, tx)
		claim(late.ID)
	}
}

// More priorities than a claimer remembers are served all the same.
func TestClaimerWithManyPriorities(t *testing.T) {
	f := fixture.New(t)
	specs := make([]engine.ExecutionSpec, 100)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Priority: i}
	}
	if _, err := f.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	if got := claimAll(t, f.Claimer(t), 7, len(specs)); len(got) != len(specs) {
		t.Errorf("claimed %d, want %d", len(got), len(specs))
	}
}

func TestClaimerIsSafeForConcurrentUse(t *testing.T) {
	f := fixture.New(t)
	claimer := f.Claimer(t)
	specs := make([]engine.ExecutionSpec, 60)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Priority: i % 3}
	}
	if _, err := f.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	var workers []func() []engine.Claimed
	for range 4 {
		workers = append(workers, fixture.Async(t, func(ctx context.Context) (all []engine.Claimed) {
			for range 5 {
				claimed, err := claimer.Claim(ctx, 3)
				if err != nil {
					t.Error(err)
				}
				all = append(all, claimed...)
			}
			return all
		}))
	}
	seen := map[id.ExecutionID]bool{}
	for _, wait := range workers {
		for _, c := range wait() {
			if seen[c.ID] {
				t.Errorf("%s was claimed twice", c.ID)
			}
			seen[c.ID] = true
		}
	}
	rest := len(specs) - len(seen)
	if rest > 0 {
		claimAll(t, claimer, 10, rest)
	}
	f.WantNothingClaimable(t)
}
