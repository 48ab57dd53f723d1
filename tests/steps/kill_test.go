package steps

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

const (
	fewestMoments = 400 // between the round trips of the worker of allForms
	strides       = 16
)

// A worker killed between any two of its round trips leaves nothing half-done. Another one finishes the execution, with the
// same result, steps and called executions each time. Effects of a StepTx and of a turn happen once. A plain step runs at
// least once, and never after it was stored. A soak kills at each moment, other tests at every sixteenth.
func TestWorkersKilledBetweenRoundTrips(t *testing.T) {
	for first := range soak.Size(t, 1, strides) {
		t.Run(fmt.Sprintf("from moment %d", first+1), func(t *testing.T) {
			f := fixture.NewCloned(t)
			f.Exec(t, effectTables)
			moment, moments := first+1, 0
			for ; killed(t, f, moment); moment += strides {
				if moments++; t.Failed() {
					t.Fatalf("killed at moment %d", moment)
				}
			}
			t.Logf("killed at %d of about %d moments", moments, moment-1)
			if moment < fewestMoments {
				t.Errorf("there were about %d moments, want %d or more", moment-1, fewestMoments)
			}
		})
	}
}

// killed runs a worker process that is killed at a moment, and finishes its work. It reports whether there was such a
// moment.
func killed(t *testing.T, on *fixture.Fixture, moment int) bool {
	t.Helper()
	c := fixture.CrewOn(t, fixture.On(t, on.Pool, on.Url), engine.Config{})
	given := orders{Lane: c.Lane, Execution: c.Create(t, retrying)}
	given.Other = c.Create(t, func(s *engine.ExecutionSpec) { s.Lane = beside(c.Lane) })
	if err := approved.Send(t.Context(), c.Engine, given.Execution, "ada"); err != nil {
		t.Fatal(err)
	}
	cut := runWorker(t, c.Url, given, moment)
	fixture.Await(t, "the server to end the sessions of the process", func() bool {
		return len(fixture.Texts(t, c.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", string(c.Lane))) == 0
	})
	d, err := newDriver(c.Pool, given, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upkeep.Of(d.later).ExpireLeases(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if c.Stored(t, given.Execution).State != fixture.StateCompleted {
		if err := errors.Join(d.advance(t.Context(), ""), d.finish(t.Context())); err != nil {
			t.Fatal(err, c.Dump(t, given.Execution))
		}
	}
	wantAllForms(t, c.Fixture, given)
	return cut
}

// runWorker runs a process that is killed at a moment. It returns once the process has ended, and reports whether it was
// killed.
func runWorker(t *testing.T, databaseURL string, given orders, moment int) bool {
	t.Helper()
	return fixture.RunCut(t, databaseURL, "-steps.worker", moment, func(url string) any {
		given.DatabaseURL = url
		return given
	})
}

// wantAllForms fails the test unless an execution of allForms has its outcome, steps and effects.
func wantAllForms(t *testing.T, f *fixture.Fixture, given orders) {
	t.Helper()
	x := given.Execution
	if got := string(f.Stored(t, x).Result); got != `"`+allResults+`"` {
		t.Errorf("the result is %s", got)
	}
	steps, err := f.StepResults(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	seqs := make(map[int]bool)
	for _, s := range steps {
		seqs[s.Seq] = true
		text := s.Name + " " + string(s.Outcome)
		if s.Outcome == engine.StepSucceeded && len(s.Result) > 0 && s.Name != "choir" {
			text += " " + string(s.Result)
		}
		got = append(got, text)
	}
	if slices.Sort(got); !slices.Equal(got, allSteps) || len(seqs) != len(steps) {
		t.Errorf("steps\n%q, want\n%q\nplaces %v", got, allSteps, seqs)
	}
	want := func(what, query string, arg any, want ...string) {
		t.Helper()
		if got := fixture.Texts(t, f.Pool, query, arg); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("booked", "SELECT step FROM booked WHERE execution = $1 ORDER BY step", x.UUID(), "book", "end", "nested/book", "reserve", "rest")
	want("effects of plain steps", `
		SELECT step || CASE WHEN bool_or(late) THEN ' after it was stored' WHEN count(DISTINCT key) > 1 THEN ' by several keys' ELSE '' END
		FROM effect WHERE execution = $1 GROUP BY step ORDER BY step`, x.UUID(),
		"flaky", "last", "nested/plain", "page/0", "page/1", "page/2", "plain")
	want("executions and called ones", `
		SELECT (raw_fields ->> 'execution_kind') || ' ' || public_state || CASE WHEN EXISTS (SELECT FROM effect WHERE execution = execution_id) THEN '' ELSE ' without effect' END
		FROM ff_exec_core WHERE lane_id = $1 ORDER BY 1`, given.Lane,
		"order completed", "singer completed", "singer completed", "singer completed")
	want("created by turns", "SELECT raw_fields ->> 'execution_kind' FROM ff_exec_core WHERE lane_id = $1 ORDER BY 1", beside(given.Lane),
		"child of end", "child of reserve", "child of rest", "test")
	want("signals of turns", "SELECT source_identity FROM ff_signal_event WHERE execution_id = $1 ORDER BY 1", given.Other.UUID().String(),
		"end", "reserve", "rest")
	ends := slices.DeleteFunc(f.Events(t, x), func(event string) bool { return event != "completion success" })
	if len(ends) != 1 || t.Failed() {
		t.Error(fmt.Sprint(f.Events(t, x)), f.Dump(t, x))
	}
}
