package steps

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
	"github.com/flowfabric/flowfabric-go/worker"
)

const (
	fewestMoments = 70 // between the round trips of the worker of allForms: its steps and effects alone have as many
	strides       = 4
)

// A worker killed between any two of its round trips leaves nothing half-done. Another one finishes the execution, with the
// same result and steps each time. Writes of a StepTx happen once. A plain step runs at least once, and never after it
// was stored. A soak kills at each moment, other tests at every fourth.
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
	x := c.Create(t, retrying)
	if err := approved.Send(t.Context(), c.Engine, x, "ada"); err != nil {
		t.Fatal(err)
	}
	cut := runWorker(t, c.Url, orders{Lane: c.Lane}, moment)
	fixture.Await(t, "the server to end the sessions of the process", func() bool {
		return len(fixture.Texts(t, c.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", string(c.Lane))) == 0
	})
	later, err := engine.New(c.Pool, engine.Config{Now: func() time.Time { return time.Now().Add(2 * workerTTL) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := later.Maintenance().ExpireLeases(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	var settlements []worker.Settlement
	for c.Stored(t, x).State != fixture.StateCompleted {
		if _, err := later.Maintenance().PromoteDelayed(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		settlement, err := settleOne(t.Context(), c.Engine, c.Lane, 1)
		if settlements = append(settlements, settlement); err != nil || len(settlements) > 10 {
			t.Fatalf("settlements %q, error %v\n%s", settlements, err, c.Dump(t, x))
		}
	}
	wantAllForms(t, c.Fixture, x)
	return cut
}

// runWorker runs a process that is killed at a moment. It returns once the process has ended, and reports whether it was
// killed.
func runWorker(t *testing.T, databaseURL string, told orders, moment int) bool {
	t.Helper()
	return fixture.RunCut(t, databaseURL, "-steps.worker", moment, func(url string) any {
		told.DatabaseURL = url
		return told
	})
}

// wantAllForms fails the test unless an execution of allForms has its outcome, steps and effects.
func wantAllForms(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
	t.Helper()
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
		if seqs[s.Seq] = true; s.Outcome == engine.StepSucceeded {
			got = append(got, s.Name+"="+string(s.Result))
		}
	}
	if slices.Sort(got); !slices.Equal(got, allSteps) || len(steps) != len(allSteps)+2 || // with a pause and a wait
		len(seqs) != len(steps) {
		t.Errorf("steps %q, with the places %v", got, seqs)
	}
	booked := fixture.Texts(t, f.Pool, "SELECT step FROM booked WHERE execution = $1 ORDER BY step", x.UUID())
	if !slices.Equal(booked, []string{"book", "nested/book"}) {
		t.Errorf("booked %q", booked)
	}
	effects := fixture.Texts(t, f.Pool, `SELECT step || CASE WHEN bool_or(late) THEN ' after it was stored' WHEN count(DISTINCT key) > 1 THEN ' by several keys'
		ELSE '' END FROM effect WHERE execution = $1 GROUP BY step ORDER BY step`, x.UUID())
	if !slices.Equal(effects, []string{"flaky", "last", "nested/plain", "page/0", "page/1", "page/2", "plain"}) {
		t.Errorf("effects of %q", effects)
	}
	ends := slices.DeleteFunc(f.Events(t, x), func(event string) bool { return event != "completion success" })
	if len(ends) != 1 || t.Failed() {
		t.Error(fmt.Sprint(f.Events(t, x)), f.Dump(t, x))
	}
}
