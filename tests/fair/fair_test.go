package fair

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Executions of two tenants start in turn, however many the other has waiting.
func TestTenantsTakeTurns(t *testing.T) {
	l := newLane(fixture.New(t), "")
	l.add(t, l.Engine, 5, of("a"))
	l.add(t, l.Engine, 3, of("b"))
	if got := strings.Join(l.order(l.take(t, 8)), ""); got != "abababaa" {
		t.Errorf("claimed %s, want abababaa", got)
	}
}

// While all have work waiting, tenants start in proportion to their weights: exactly, in each round.
func TestWeightsHold(t *testing.T) {
	l := newLane(fixture.NewCloned(t), "")
	weights := []int{1, 2, 7, 90, 900}
	const rounds = 8
	for n, weight := range weights {
		l.add(t, l.Engine, 2*rounds*weight, named(n, weight))
	}
	total := 0
	for _, weight := range weights {
		total += weight
	}
	counts := make(map[string]int)
	for left := rounds * total; left > 0; {
		claimed := l.take(t, min(left, 1000))
		if len(claimed) == 0 {
			t.Fatal("a claim is empty")
		}
		left -= len(claimed)
		for _, tenant := range l.order(claimed) {
			counts[tenant]++
		}
	}
	for n, weight := range weights {
		got, want := counts[named(n, 1).Tenant], rounds*weight
		if 100*max(got-want, want-got) > 2*want && max(got-want, want-got) > 1 {
			t.Errorf("weight %d: %d starts, want %d", weight, got, want)
		}
	}
}

// A tenant without work waiting goes next, although thousands of another tenant wait, and a claimer with scan positions
// finds it once it is woken.
func TestNewcomerGoesNext(t *testing.T) {
	l := newLane(fixture.NewCloned(t), "")
	l.add(t, l.Engine, 5000, of("large"))
	claimer := l.Claimer(t)
	for range 4 {
		if claimed, err := claimer.Claim(t.Context(), 200); err != nil || len(claimed) != 200 {
			t.Fatalf("%d, %v", len(claimed), err)
		}
	}
	for _, tenant := range []string{"b", "c", "b", "d"} {
		l.add(t, l.Engine, 1, of(tenant))
		claimer.Wake()
		claimed, err := claimer.Claim(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.order(claimed); !slices.Contains(got, tenant) {
			t.Errorf("claimed %v, want %s among them", got, tenant)
		}
	}
}

// A tenant that keeps one execution waiting gets a turn in each round, and no more.
func TestOneAtATimeGetsItsTurn(t *testing.T) {
	l := newLane(fixture.New(t), "")
	l.add(t, l.Engine, 20, of("a"))
	l.add(t, l.Engine, 1, of("b"))
	var got []string
	for range 20 {
		tenant := l.order(l.take(t, 1))[0]
		got = append(got, tenant)
		if tenant == "b" {
			l.add(t, l.Engine, 1, of("b"))
		}
	}
	if order := strings.Join(got, ""); order != strings.Repeat("ab", 10) {
		t.Errorf("claimed %s", order)
	}
}

// Time that a tenant lets pass gives it nothing, and none has to pay for work that ran while the lane was empty.
func TestNothingIsSavedUp(t *testing.T) {
	l := newLane(fixture.New(t), "")
	l.add(t, l.Engine, 500, of("a"))
	l.take(t, 500)
	l.Advance(100 * time.Millisecond)
	l.add(t, l.Engine, 3, of("b"))
	l.add(t, l.Engine, 3, of("a"))
	if got := strings.Join(l.order(l.take(t, 6)), ""); got != "bababa" {
		t.Errorf("claimed %s, want bababa", got)
	}
}

// Priorities go first: tenants take turns within each.
func TestPriorityGoesBeforeTurns(t *testing.T) {
	l := newLane(fixture.New(t), "")
	urgent := func(s *engine.ExecutionSpec) { s.Priority = 5 }
	l.add(t, l.Engine, 2, of("a"))
	l.add(t, l.Engine, 2, of("b"))
	l.add(t, l.Engine, 3, of("A"), urgent)
	l.add(t, l.Engine, 2, of("B"), urgent)
	if got := strings.Join(l.order(l.take(t, 9)), ""); got != "ABABAabab" {
		t.Errorf("claimed %s, want ABABAabab", got)
	}
}

// Work without a tenant keeps its age. The first execution of a tenant stands at its own, the others follow.
func TestOtherWorkStandsByItsAge(t *testing.T) {
	l := newLane(fixture.New(t), "")
	l.add(t, l.Engine, 1, of("-"), func(s *engine.ExecutionSpec) { s.Fair = engine.FairShare{} })
	l.add(t, l.Engine, 20, of("a"))
	l.Advance(10 * time.Millisecond)
	l.add(t, l.Engine, 1, of("-"), func(s *engine.ExecutionSpec) { s.Fair = engine.FairShare{} })
	if got := strings.Join(l.order(l.take(t, 22)), ""); got != "-"+strings.Repeat("a", 11)+"-"+strings.Repeat("a", 9) {
		t.Errorf("claimed %s", got)
	}
}

// An execution keeps its place through a release, a delay and a loss of its lease, so it goes first when it comes back.
func TestComesBackToItsPlace(t *testing.T) {
	ways := []struct {
		name string
		back func(t *testing.T, l *lane, c engine.Claimed)
	}{
		{"release", func(t *testing.T, l *lane, c engine.Claimed) {
			if errs, err := l.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
		}},
		{"delay", func(t *testing.T, l *lane, c engine.Claimed) {
			if err := l.DelayExecution(t.Context(), c.Lease, l.Time().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			l.Advance(time.Hour)
			if _, err := upkeep.Of(l.Engine).PromoteDelayed(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}},
		{"lost lease", func(t *testing.T, l *lane, _ engine.Claimed) {
			l.Advance(time.Hour)
			if _, err := upkeep.Of(l.Engine).ExpireLeases(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			l := newLane(fixture.NewCloned(t), "")
			l.add(t, l.Engine, 3, of("a"))
			l.add(t, l.Engine, 3, of("b"))
			first := l.take(t, 1)[0]
			place := l.Stored(t, first.ID).CreatedAtMs
			way.back(t, l, first)
			again := l.take(t, 6)
			if len(again) != 6 || again[0].ID != first.ID || l.Stored(t, first.ID).CreatedAtMs != place {
				t.Errorf("claimed %d, first %v, want 6 and %v at %d", len(again), again[0].ID, first.ID, place)
			}
			l.WantQueue(t, t, way.name)
		})
	}
}

// Work that comes back to its old place says nothing about the present: a newcomer stands where the lane's new work is served, and
// does not go ahead of that by old places.
func TestWorkThatComesBackGivesNoOldPlaces(t *testing.T) {
	l := newLane(fixture.NewCloned(t), "")
	l.add(t, l.Engine, 20, of("a"))
	claimed := l.take(t, 10)
	if errs, err := l.ReleaseLeases(t.Context(), []engine.Lease{claimed[0].Lease}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	l.add(t, l.Engine, 5, of("b"))
	if got, want := l.order(l.take(t, 5)), []string{"a", "a", "b", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}
