package signals

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// Every call stops before each of its statements while each other call runs into its locks. None of them deadlocks, and
// each ends with an answer of its own. A soak tries all combinations, other runs each third.
func TestWaitsAndSignalsTakeLocksInOneOrder(t *testing.T) {
	for _, suspended := range []bool{false, true} {
		t.Run(fmt.Sprintf("suspended %t", suspended), func(t *testing.T) {
			f := fixture.NewCloned(t)
			sent := statementsOfCalls(t, f, suspended)
			log := new(fixture.StatementLog)
			other := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
			n := 0
			for _, first := range slices.Sorted(maps.Keys(sent)) {
				for _, statement := range sent[first] {
					for _, second := range slices.Sorted(maps.Keys(sent)) {
						if n++; n%soak.Size(t, 3, 1) == 0 {
							meetAt(t, newScene(t, fixture.On(t, f.Pool, f.Url), suspended), first, statement, second, other, log)
						}
					}
				}
			}
		})
	}
}

// statementsOfCalls returns the statements that each call sends, by their names.
func statementsOfCalls(t *testing.T, f *fixture.Fixture, suspended bool) map[string][]string {
	t.Helper()
	sent := make(map[string][]string)
	for call := range meetingCalls(&scene{Flows: fixture.FlowsOn(f)}) {
		s := newScene(t, fixture.On(t, f.Pool, f.Url), suspended)
		log := new(fixture.StatementLog)
		e := s.EngineOn(t, log.Open(t, s.Url), engine.Config{})
		late(s, call)
		for _, sql := range log.During(func() { meetingCalls(s)[call](t.Context(), e) }) {
			if name := fixture.Names([]string{sql})[0]; strings.HasPrefix(sql, "-- name: ") && !slices.Contains(sent[call], name) {
				sent[call] = append(sent[call], name)
			}
		}
		if len(sent[call]) == 0 {
			t.Fatalf("%s sends nothing", call)
		}
		_ = s.CancelExecution(t.Context(), engine.CancelSpec{ID: s.lease.Execution}) // leave no work for the jobs
	}
	return sent
}

// meetAt lets the second call begin when the first is about to send a statement.
func meetAt(t *testing.T, s *scene, first, statement, second string, other *fixture.Rival, log *fixture.StatementLog) {
	t.Helper()
	answers := []string{"done", "nothing", "stale lease", "not suspended", "buffered", "satisfied", "ended", "not found", "closed"}
	stopped := s.StoppedBefore(t, statement)
	defer stopped.Pool.Close()
	late(s, first, second)
	calls, e := meetingCalls(s), s.EngineOn(t, other.Pool, engine.Config{})
	one := fixture.Async(t, func(ctx context.Context) string { return calls[first](ctx, stopped.Engine) })
	stopped.AwaitStop(t)
	returned, wait := fixture.Watched(t, func(ctx context.Context) string { return calls[second](ctx, e) })
	other.AwaitBlockedOr(t, s.Fixture, returned)
	stopped.Resume()
	got := []string{one(), wait()}
	if slices.Contains(log.Aborted(), "40P01") || !slices.Contains(answers, got[0]) || !slices.Contains(answers, got[1]) {
		t.Errorf("%s, stopped before %s, and %s: %q; the server gave up %q", first, statement, second, got, log.Aborted())
	}
	_ = s.CancelExecution(t.Context(), engine.CancelSpec{ID: s.lease.Execution})
}

// late lets the time of a scene's waits and waitpoints pass if one of the calls is a job.
func late(s *scene, calls ...string) {
	if slices.Contains(calls, "expire waits") || slices.Contains(calls, "expire waitpoints") {
		s.Advance(time.Second)
	}
}
