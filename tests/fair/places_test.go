package fair

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// places returns the number of stored places.
func places(t *testing.T, l *lane) string {
	t.Helper()
	return fixture.Texts(t, l.Pool, "SELECT count(*)::text FROM ffx_fair_place")[0]
}

// The job leaves the greatest place of each tenant, until its execution has started and an hour has passed.
func TestPlacesAreForgotten(t *testing.T) {
	l := newLane(fixture.NewCloned(t), "")
	forget := func(want int, left string) {
		t.Helper()
		total := 0
		for range 6 { // pages of two
			n, err := upkeep.Of(l.Engine).ForgetFairPlaces(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		if got := places(t, l); total != want || got != left {
			t.Errorf("forgot %d places and left %s, want %d and %s", total, got, want, left)
		}
	}
	for range 3 {
		l.add(t, l.Engine, 2, of("a"))
	}
	l.add(t, l.Engine, 1, of("b"))
	forget(2, "2")
	start := l.Time().UnixMilli()
	if at := l.Stored(t, l.add(t, l.Engine, 1, of("a"))[0]).CreatedAtMs; at != start+6 {
		t.Errorf("stands at %d, want %d", at, start+6)
	}
	l.Advance(2 * time.Hour)
	forget(1, "2") // both tenants have work waiting
	l.take(t, 7)
	forget(1, "1")
	l.take(t, 1)
	forget(1, "0")
	if at := l.Stored(t, l.add(t, l.Engine, 1, of("a"))[0]).CreatedAtMs; at != l.Time().UnixMilli() {
		t.Errorf("stands at %d, want the present, %d", at, l.Time().UnixMilli())
	}
	_, err := upkeep.Of(l.Engine).ForgetFairPlaces(t.Context(), 1)
	fixture.WantInputError(t, err, "batch")
}

// An id that exists takes no place, even if it comes last.
func TestExistingIDsTakeNoPlace(t *testing.T) {
	l := newLane(fixture.New(t), "")
	plain := l.add(t, l.Engine, 1, engine.FairShare{})[0]
	l.Advance(time.Millisecond)
	outcomes, err := l.CreateExecutions(t.Context(), []engine.ExecutionSpec{
		{Lane: l.name, Kind: "test", Fair: of("a")}, {Lane: l.name, Kind: "test", Fair: of("a"), ID: plain},
	})
	if err != nil || outcomes[0].Err != nil || !outcomes[1].Value.Duplicate {
		t.Fatal(outcomes, err)
	}
	if at := l.Stored(t, l.add(t, l.Engine, 1, of("a"))[0]).CreatedAtMs; at != l.Time().UnixMilli()+1 {
		t.Errorf("stands at %d, want %d", at, l.Time().UnixMilli()+1)
	}
}

// Executions that are alike but for their tenants go by the fast path, and become the same rows as by the general one.
func TestLeanStatementWritesTheSameRows(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Create(t)
	log := new(fixture.StatementLog)
	e := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	specs := make([]engine.ExecutionSpec, 20)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{ID: id.NewExecutionID(f.Lane, id.Partitions{}), Lane: f.Lane, Kind: "test", Fair: named(i%3, 1+i%2)}
	}
	if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}); err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for statement, more := range map[string][]engine.ExecutionSpec{
		"InsertAlikeFair":  nil,
		"InsertExecutions": {{Lane: f.Lane, Kind: "test", DelayUntil: fixture.Start.Add(time.Hour)}},
	} {
		f.Exec(t, "DELETE FROM ff_exec_core")
		f.Exec(t, "DELETE FROM ffx_fair_place")
		sent := fixture.Names(log.During(func() {
			if _, err := e.CreateExecutions(t.Context(), slices.Concat(specs, more)); err != nil {
				t.Fatal(err)
			}
		}))
		if want := []string{"ListFairPlaces", statement, "EnsureFairPlaces"}; !slices.Equal(slices.DeleteFunc(sent, func(s string) bool { return s == "select" }), want) {
			t.Errorf("sent %q, want %q", sent, want)
		}
		all = append(all, fixture.Texts(t, f.Pool, `
			SELECT e.execution_id::text || to_jsonb(e)::text FROM ff_exec_core AS e WHERE ffx_created_at_ms IS NOT NULL
			UNION ALL
			SELECT r.execution_id::text || r::text FROM ffx_ready AS r
			UNION ALL
			SELECT p.execution_id::text || p::text FROM ffx_fair_place AS p
			ORDER BY 1`))
	}
	if len(all[0]) < 2*len(specs) || !slices.Equal(all[0], all[1]) {
		t.Errorf("stored\n%q\nor\n%q", all[0], all[1])
	}
}
