package schedules

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// countOf counts a statement in a log.
func countOf(sent []string, statement string) (n int) {
	for _, s := range sent {
		if s == statement {
			n++
		}
	}
	return n
}

// hold lets a transaction take the orders of schedules: their keys or sequences are new, or exist already.
func hold(t *testing.T, f *fixture.Fixture, n int, exist bool, order func(i int, s *engine.ExecutionSpec)) pgx.Tx {
	t.Helper()
	specs := make([]engine.ExecutionSpec, n)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Kind: "tick", Lane: f.Lane + "-other"}
		order(i, &specs[i])
	}
	if exist {
		outcomes, err := f.CreateExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			cancel(t, f, o.Value.ID)
		}
		for i := range specs { // a sequence exists as long as it has members
			if !specs[i].Sequence.IsZero() {
				if _, err := f.CreateExecution(t.Context(), specs[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	return tx
}

// While a transaction holds the keys or sequences of sixty schedules, a look leaves these to a later one after a few tries, or
// without any if the rows exist, and creates the ticks of all others. No tick is lost. L4
func TestHeldOrdersDelayNoOtherSchedule(t *testing.T) {
	const n = 60
	unique := func(i int, s *engine.ExecutionSpec) {
		s.Payload, s.Unique = fmt.Appendf(nil, "%d", i), &engine.Unique{ByArgs: true}
	}
	sequence := func(i int, s *engine.ExecutionSpec) { s.Sequence = engine.Sequence{Key: fmt.Sprint(i)} }
	one := func(_ int, s *engine.ExecutionSpec) { s.Sequence = engine.Sequence{Key: "one"} }
	for _, test := range []struct {
		name  string
		exist bool
		order func(int, *engine.ExecutionSpec)
	}{
		{"unique keys", true, unique}, {"new unique keys", false, unique},
		{"sequences", true, sequence}, {"new sequences", false, sequence},
		{"one sequence", true, one}, {"one new sequence", false, one},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			for i := range n {
				set(t, f, every(f, fmt.Sprint("held", i), time.Minute, func(s *schedule.Spec) { test.order(i, &s.Execution) }))
			}
			set(t, f, every(f, "plain", time.Minute))
			free := every(f, "free", time.Minute, func(s *schedule.Spec) { s.Execution.Sequence.Key = "free" })
			set(t, f, free)
			tx := hold(t, f, n, test.exist, test.order)
			f.Advance(time.Minute)
			log := new(fixture.StatementLog)
			late := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
			sent := log.During(func() {
				if m, err := upkeep.Of(late).RunSchedules(t.Context(), engine.MaxBatch); m != n+2 || err != nil {
					t.Errorf("%d schedules, error %v", m, err)
				}
			})
			if got := describe(t, f, "plain").Last.Outcome; got != schedule.TickCreated {
				t.Errorf("the plain schedule: %q", got)
			}
			names := fixture.Names(sent)
			tries := countOf(names, "LockSequences") + countOf(names, "InsertUniqueKeys") + countOf(names, "InsertUnique")
			if most := map[bool]int{true: 1, false: 12}[test.exist]; tries > most {
				t.Errorf("%d tries, want %d at most", tries, most)
			}
			fixture.Await(t, "the schedule whose sequence is free", func() bool {
				if _, err := upkeep.Of(late).RunSchedules(t.Context(), engine.MaxBatch); err != nil {
					t.Fatal(err)
				}
				return describe(t, f, "free").Last.Outcome == schedule.TickCreated
			})
			f.End(t, tx, false)
			f.Advance(time.Second)
			for {
				m, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), engine.MaxBatch)
				if err != nil {
					t.Fatal(err)
				}
				if m == 0 {
					break
				}
			}
			ticks := slices.Repeat([]string{"1m0s"}, n+2)
			if got := created(t, f); !slices.Equal(got, ticks) {
				t.Errorf("%d ticks %v, want one of each of %d", len(got), got, n+2)
			}
		})
	}
}
