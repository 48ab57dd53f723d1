package schedules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// every returns the spec of a schedule on the fixture's lane.
func every(f *fixture.Fixture, name string, d time.Duration, change ...func(*schedule.Spec)) schedule.Spec {
	spec := schedule.Spec{Name: name, Every: d, Execution: engine.ExecutionSpec{Kind: "tick", Lane: f.Lane}}
	for _, with := range change {
		with(&spec)
	}
	return spec
}

// set creates or changes a schedule.
func set(t *testing.T, f *fixture.Fixture, spec schedule.Spec) {
	t.Helper()
	if err := schedule.Put(t.Context(), f.Engine, spec); err != nil {
		t.Fatal(err)
	}
}

// run creates the executions of want due schedules.
func run(t *testing.T, f *fixture.Fixture, want int) {
	t.Helper()
	if n, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), engine.MaxBatch); n != want || err != nil {
		t.Fatalf("%d schedules, error %v, want %d", n, err, want)
	}
}

// created returns the ticks of all executions of a lane, as seconds after [fixture.Start], sorted.
func created(t *testing.T, f *fixture.Fixture) []string {
	t.Helper()
	var ticks []string
	for _, text := range fixture.Texts(t, f.Pool,
		"SELECT raw_fields #>> '{tags,ffx.scheduled_for}' FROM ff_exec_core WHERE lane_id = $1 ORDER BY 1", string(f.Lane)) {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		ticks = append(ticks, fmt.Sprint(at.Sub(fixture.Start)))
	}
	return ticks
}

func wantCreated(t *testing.T, f *fixture.Fixture, want string) {
	t.Helper()
	if got := strings.Join(created(t, f), " "); got != want {
		t.Errorf("created %q, want %q", got, want)
	}
}

// describe returns a schedule of the default namespace.
func describe(t *testing.T, f *fixture.Fixture, name string) schedule.State {
	t.Helper()
	s, _, err := schedule.Describe(t.Context(), f.Engine, schedule.Name{Name: name}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A tick creates one execution, which has everything of the schedule's.
func TestTickCreatesTheExecution(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) {
		s.Namespace = "other"
		s.Execution.Payload, s.Execution.PayloadEncoding = []byte("in"), "text"
		s.Execution.Priority, s.Execution.Creator = 7, "me"
		s.Execution.Tags = map[string]string{"app.a": "b"}
		s.Execution.Policy = &policy.Execution{MaxReclaims: 3, Deadline: time.Hour, Capabilities: id.Capabilities{"gpu"}}
	}))
	run(t, f, 0)
	f.Advance(time.Minute)
	run(t, f, 1)
	run(t, f, 0)
	claimed, err := f.Claim(t.Context(), engine.ClaimSpec{
		Lane: f.Lane, Worker: "w", Instance: "i", LeaseTTL: fixture.LeaseTTL, Capabilities: id.Capabilities{"gpu"},
	}, 2)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%+v, error %v", claimed, err)
	}
	got := claimed[0]
	if got.Kind != "tick" || string(got.Payload) != "in" || got.Tags["app.a"] != "b" || got.Tags[schedule.Tag] != "s" ||
		got.Tags[schedule.TimeTag] != fixture.Start.Add(time.Minute).UTC().Format(time.RFC3339Nano) {
		t.Errorf("%+v", got)
	}
	x, err := f.DescribeExecution(t.Context(), got.ID)
	if err != nil || x.Namespace != "other" || x.Priority != 7 || x.Deadline.IsZero() ||
		f.Stored(t, got.ID).Raw(t, "creator_identity") != "me" || f.Stored(t, got.ID).Raw(t, "payload_encoding") != "text" {
		t.Errorf("%+v, error %v", x, err)
	}
	s, _, err := schedule.Describe(t.Context(), f.Engine, schedule.Name{Namespace: "other", Name: "s"}, 0)
	if err != nil || s.Last.Outcome != schedule.TickCreated || s.Last.Execution != got.ID {
		t.Errorf("%+v, error %v", s, err)
	}
}

// Many processes run the same schedules at once: each tick creates one execution.
func TestTicksAreCreatedOnceByManyProcesses(t *testing.T) {
	f := fixture.NewCloned(t)
	const schedules, processes, rounds = 60, 6, 5
	for i := range schedules {
		set(t, f, every(f, fmt.Sprint("s", i), time.Minute))
	}
	for range rounds {
		f.Advance(time.Minute)
		var all sync.WaitGroup
		for range processes {
			eng := f.EngineOn(t, f.Pool, engine.Config{})
			all.Go(func() {
				for {
					n, err := upkeep.Of(eng).RunSchedules(t.Context(), 7)
					if errors.Is(err, fferr.ErrBusy) {
						continue // another one inserts the lane
					}
					if err != nil {
						t.Error(err)
					}
					if err != nil || n == 0 {
						return
					}
				}
			})
		}
		all.Wait()
		// A process may have skipped what another one held until it ended.
		for {
			if n, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), 7); err != nil || n == 0 {
				break
			}
		}
	}
	ticks := fixture.Texts(t, f.Pool, `SELECT count(*)::text FROM ff_exec_core
		GROUP BY raw_fields #>> '{tags,ffx.schedule}', raw_fields #>> '{tags,ffx.scheduled_for}'`)
	if len(ticks) != schedules*rounds || slices.ContainsFunc(ticks, func(n string) bool { return n != "1" }) {
		t.Errorf("%d ticks, of %v executions, want %d of one each", len(ticks), ticks, schedules*rounds)
	}
}

// A transaction that fails leaves neither an execution nor a moved schedule.
func TestTickAndMoveAreOneTransaction(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	f.Advance(time.Minute)
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := upkeep.Of(f.WithTx(tx)).RunSchedules(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("%d, error %v", n, err)
	}
	run(t, f, 0) // it is locked
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCreated(t, f, "")
	run(t, f, 1)
	wantCreated(t, f, "1m0s")
}

// A schedule changes with the caller's transaction.
func TestScheduleIsSetInTheCallersTransaction(t *testing.T) {
	f := fixture.NewCloned(t)
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := schedule.Put(t.Context(), f.WithTx(tx), every(f, "s", time.Minute)); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Minute)
	run(t, f, 0)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, f, 1)
}

func cancel(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
	t.Helper()
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
		t.Fatal(err)
	}
}

// nextDue returns when a schedule is due, with its jitter.
func nextDue(t *testing.T, f *fixture.Fixture, name string) time.Time {
	t.Helper()
	var ms int64
	if err := f.Pool.QueryRow(t.Context(), "SELECT next_ms FROM ffx_schedule WHERE name = $1", name).Scan(&ms); err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(ms)
}
