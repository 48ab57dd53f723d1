//go:build unix

package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A worker process that is killed is listed until its TTL is over, and swept then. Its execution goes on in another worker
// once its lease is over, by which the registry has nothing to do.
func TestKilledWorkerIsSweptAndItsWorkGoesOn(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t)
	process, lines := startProcess(t, f, "PGAPPNAME=killed")
	if line := progress.Receive(t, "the handler to start", lines); line != "started" {
		t.Fatal(line)
	}
	fixture.Await(t, "the worker to register", func() bool { return len(listed(t, f, gone)) == 1 })
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range lines {
		// Until its output ends.
	}
	if err := process.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	fixture.Await(t, "the statements of the process to end", func() bool {
		return fixture.Texts(t, f.Pool, "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'killed'")[0] == "0"
	})

	w := listed(t, f, gone)[0] // the fixture's clock is ahead of the process's
	sweep := func(want int) {
		t.Helper()
		if n, err := upkeep.Of(f.Engine).SweepWorkers(t.Context(), 10); err != nil || n != want {
			t.Errorf("swept %d, %v, want %d", n, err, want)
		}
	}
	f.Clock.Store(w.HeartbeatAt.Add(engine.DefaultWorkerTTL).UnixMilli() - 1)
	if got := listed(t, f); len(got) != 1 || !got[0].Live {
		t.Errorf("listed %+v a millisecond before the end of the TTL", got)
	}
	sweep(0)
	f.Advance(time.Millisecond)
	if got := listed(t, f); len(got) != 0 {
		t.Errorf("listed %+v after the TTL", got)
	}
	if got := listed(t, f, gone); len(got) != 1 || got[0].Live || got[0].Instance != w.Instance {
		t.Errorf("listed as gone %+v", got)
	}
	f.WantState(t, x, fixture.StateRunning)
	sweep(1)
	f.WantState(t, x, fixture.StateRunning)

	f.Clock.Store(*f.StoredAttempts(t, x)[0].LeaseExpiresAtMs)
	if n, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("expired %d, %v", n, err)
	}
	c := fixture.CrewOn(t, f, engine.Config{Now: f.Time})
	c.Work(t, worker.Config{Instance: "another", NoReconcile: true}, func(w *worker.Worker) {
		fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
	})
	if s := c.Next(t, 1)[0]; s.ID != x || s.Err != nil || s.Lease.Epoch == 1 || s.Lease.Instance != "another" {
		t.Errorf("settled %+v, want %s in a later lease", s, x)
	}
	f.WantState(t, x, fixture.StateCompleted)
	fixture.Await(t, "the other worker to register", func() bool { return len(listed(t, f)) == 1 })
	if got := listed(t, f, gone); len(got) != 1 || got[0].Instance != "another" {
		t.Errorf("listed %+v, want the other worker alone", got)
	}
}

// A drained pool with more work than it can take starts nothing that it hadn't claimed before the drain, finishes all that
// it had, and takes the rest once it is resumed. Each execution is handled once.
func TestPoolIsDrainedUnderLoad(t *testing.T) {
	t.Parallel()
	const executions = 300
	looks := fixture.NewLookLog()
	pool := fixture.OpenPool(t, pgtest.URL(t), func(config *pgxpool.Config) { config.ConnConfig.Tracer = looks })
	c := fixture.CrewOn(t, fixture.On(t, pool, pgtest.URL(t)), engine.Config{})
	specs := make([]engine.ExecutionSpec, executions)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: c.Lane, Kind: "test"}
	}
	if _, err := c.Eng.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	turns := make(chan struct{}, executions)
	config := worker.Config{Worker: id.WorkerID(c.Name), Concurrency: 4, PollInterval: 10 * time.Millisecond, NoReconcile: true}
	c.Work(t, config, func(w *worker.Worker) {
		fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (struct{}, error) {
			<-turns
			return struct{}{}, nil
		})
	})
	finish := func(n int) {
		for range n {
			turns <- struct{}{}
		}
	}
	count := func(what, from string) int {
		t.Helper()
		n := fixture.Texts(t, c.Pool, fmt.Sprintf("SELECT count(*)::text FROM ff_exec_core AS c %s AND c.lane_id = '%s'", from, c.Lane))
		var number int
		if _, err := fmt.Sscan(n[0], &number); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return number
	}
	finish(40)
	settled := c.Next(t, 40)

	drained, err := operator.DrainWorkers(t.Context(), c.Fixture.Engine, engine.WorkerFilter{Worker: config.Worker})
	if err != nil || len(drained) != 1 {
		t.Fatalf("drained %v, %v", drained, err)
	}
	since, err := c.Eng.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	finish(executions - 40) // more than it holds
	fixture.Await(t, "the executions that it holds to end", func() bool {
		return count("held", "WHERE c.ownership_state = 'leased'") == 0
	})
	looks.Take()
	claims := 0
	fixture.Await(t, "the worker to ask for work and get none", func() bool {
		for _, l := range looks.Take() {
			if strings.HasPrefix(l.Query, "Claim") {
				claims++
			}
		}
		return claims >= 3
	})
	if n := count("late", fmt.Sprintf("JOIN ff_attempt AS a USING (partition_key, execution_id) WHERE a.started_at_ms > %d", since.UnixMilli())); n != 0 {
		t.Errorf("%d executions were claimed after the drain", n)
	}
	begun := count("begun", "JOIN ff_attempt AS a USING (partition_key, execution_id) WHERE true")
	settled = append(settled, c.Next(t, begun-len(settled))...)
	if n := count("ended", "WHERE c.lifecycle_phase = 'terminal'"); n != begun || n == executions {
		t.Errorf("%d ended, want the %d that were begun, and not all %d", n, begun, executions)
	}
	if got := listed(t, c.Fixture); len(got) != 1 || got[0].Instance != drained[0] || got[0].DrainedSince.IsZero() || got[0].Stopping {
		t.Errorf("listed %+v, want %s, drained", got, drained[0])
	}

	if resumed, err := operator.ResumeWorkers(t.Context(), c.Fixture.Engine, engine.WorkerFilter{Worker: config.Worker}); err != nil || !slices.Equal(resumed, drained) {
		t.Errorf("resumed %v, %v, want %v", resumed, err, drained)
	}
	settled = append(settled, c.Next(t, executions-len(settled))...)
	once := make(map[id.ExecutionID]bool)
	for _, s := range settled {
		if s.Err != nil || once[s.ID] || s.Lease.Epoch != 1 {
			t.Errorf("settled %+v, want each execution once, in its first lease", s)
		}
		once[s.ID] = true
	}
	if n := count("ended", "WHERE c.lifecycle_phase = 'terminal'"); n != executions {
		t.Errorf("%d ended, want all %d", n, executions)
	}
}
