package upkeep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// allJobs are the jobs whose due times the database returns.
var allJobs = []upkeep.Job{
	upkeep.JobExpireLeases, upkeep.JobPromoteDelayed, upkeep.JobExpireAttempts, upkeep.JobExpireDeadlines,
	upkeep.JobPruneCreationKeys, upkeep.JobDispatchCompletions, upkeep.JobCancelSiblings,
}

const jobHold = 4 * time.Second

func takeJobs(t *testing.T, f *fixture.Fixture, eng *engine.Engine, holder id.WorkerInstanceID) upkeep.JobsTaken {
	t.Helper()
	taken, err := upkeep.Of(eng).TakeJobs(t.Context(), upkeep.JobSpec{
		Holder: holder, Hold: jobHold, Jobs: slices.Concat(allJobs, []upkeep.Job{upkeep.JobRepairQueue}), Lanes: []id.LaneID{"empty", f.Lane},
	})
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// The holder of a job stores the ends of its calls. They stay until there are newer ones, and another process stores none.
func TestTakeJobsStoresTheEndsOfCalls(t *testing.T) {
	f := fixture.NewCloned(t)
	jobs := []upkeep.Job{upkeep.JobRetain, upkeep.JobRepairQueue}
	take := func(holder id.WorkerInstanceID, ends []upkeep.JobEnds) error {
		_, err := upkeep.Of(f.Engine).TakeJobs(t.Context(), upkeep.JobSpec{Holder: holder, Hold: jobHold, Jobs: jobs, Ends: ends})
		return err
	}
	listed := func() (all []operator.BackgroundJob) {
		for job, err := range operator.Jobs(t.Context(), f.Engine) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, job)
		}
		return all
	}
	if all := listed(); len(all) != 0 {
		t.Fatalf("%+v before any process has asked", all)
	}
	if err := take("first", nil); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("é", 1000) + "\x00"
	now := time.Now()
	if err := take("first", []upkeep.JobEnds{{Succeeded: now}, {Failed: now, Err: errors.New(long)}}); err != nil {
		t.Fatal(err)
	}
	if err := take("first", nil); err != nil {
		t.Fatal(err)
	}
	if err := take("second", []upkeep.JobEnds{{Failed: now, Err: errors.New("not its job")}, {}}); err != nil {
		t.Fatal(err)
	}
	all := listed() // by name
	if len(all) != 2 || all[0].Name != "repair_queue" || all[1].Name != "retain" {
		t.Fatalf("%+v", all)
	}
	failed, succeeded := all[0], all[1]
	if failed.Error != strings.Repeat("é", 512) || failed.Failed.IsZero() || !failed.Succeeded.IsZero() || !failed.Due.IsZero() {
		t.Errorf("%+v", failed)
	}
	if succeeded.Error != "" || succeeded.Succeeded.IsZero() || succeeded.Holder != "first" || !succeeded.Held || !succeeded.HeldUntil.Equal(f.Time().Add(jobHold)) {
		t.Errorf("%+v", succeeded)
	}
	if err := take("first", make([]upkeep.JobEnds, 1)); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("the ends of one of two jobs: %v", err)
	}
	if err := upkeep.Of(f.Engine).ReturnJobs(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if all := listed(); all[0].Held || !all[0].HeldUntil.IsZero() || all[0].Failed.IsZero() {
		t.Errorf("after the return: %+v", all[0])
	}
}

func ours(taken upkeep.JobsTaken) (n int) {
	for _, job := range taken.Jobs {
		if job.Ours {
			n++
		}
	}
	return n
}

// One process has all jobs as long as it asks for them. When it falls silent another takes them, when its hold is over
// and not before.
func TestTakeJobsHasOneHolder(t *testing.T) {
	f := fixture.NewCloned(t)
	other := f.Rival(t)
	all := len(allJobs) + 1
	for range 5 {
		if n := ours(takeJobs(t, f, f.Engine, "first")); n != all {
			t.Fatalf("the holder has %d of %d jobs", n, all)
		}
		taken := takeJobs(t, f, other.Engine, "second")
		if n := ours(taken); n != 0 {
			t.Fatalf("another has %d jobs beside the holder", n)
		}
		for name, job := range taken.Jobs {
			if want := f.Time().Add(jobHold); !job.HeldUntil.Equal(want) {
				t.Errorf("%s is held until %v, want %v", name, job.HeldUntil, want)
			}
		}
		f.Advance(3 * time.Second)
	}
	f.Advance(jobHold - 3*time.Second - time.Millisecond)
	if n := ours(takeJobs(t, f, other.Engine, "second")); n != 0 {
		t.Fatalf("another takes %d jobs before the hold is over", n)
	}
	f.Advance(time.Millisecond)
	if n := ours(takeJobs(t, f, other.Engine, "second")); n != all {
		t.Errorf("another takes %d of %d jobs when the hold is over", n, all)
	}
	if n := ours(takeJobs(t, f, f.Engine, "first")); n != 0 {
		t.Errorf("the first takes %d jobs back", n)
	}
}

func TestReturnJobs(t *testing.T) {
	f := fixture.NewCloned(t)
	takeJobs(t, f, f.Engine, "first")
	for range 2 {
		if err := upkeep.Of(f.Engine).ReturnJobs(t.Context(), "second"); err != nil {
			t.Fatal(err)
		}
	}
	if n := ours(takeJobs(t, f, f.Engine, "second")); n != 0 {
		t.Fatalf("who has no job has given up %d of another", n)
	}
	if err := upkeep.Of(f.Engine).ReturnJobs(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if n := ours(takeJobs(t, f, f.Engine, "second")); n != len(allJobs)+1 {
		t.Errorf("takes %d jobs that were given up", n)
	}
}

// A transaction that locks the rows for a minute keeps no process waiting, and no job undone.
func TestTakeJobsSkipsLockedRows(t *testing.T) {
	f := fixture.NewCloned(t)
	takeJobs(t, f, f.Engine, "first")
	locker := f.BeginTx(t)
	if _, err := locker.Exec(t.Context(), "SELECT FROM ffx_job FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if n := ours(takeJobs(t, f, f.Engine, "second")); n != 0 {
		t.Errorf("another has %d jobs before the hold is over", n)
	}
	f.Advance(jobHold)
	for _, holder := range []id.WorkerInstanceID{"first", "second"} {
		if n := ours(takeJobs(t, f, f.Engine, holder)); n != len(allJobs)+1 {
			t.Errorf("%s does %d jobs while nobody can take them", holder, n)
		}
	}
	if err := upkeep.Of(f.Engine).ReturnJobs(t.Context(), "first"); err != nil {
		t.Error(err)
	}
}

// Each job is due when the first row of its own is, and not without one.
func TestTakeJobsReportsDueTimes(t *testing.T) {
	f := fixture.NewCloned(t)
	check := func(situation string, want map[upkeep.Job]time.Time) {
		t.Helper()
		taken := takeJobs(t, f, f.Engine, "holder")
		if !taken.Now.Equal(f.Time()) {
			t.Errorf("%s: now is %v, want %v", situation, taken.Now, f.Time())
		}
		for name, job := range taken.Jobs {
			if !job.Due.Equal(want[name]) {
				t.Errorf("%s: %s is due at %v, want %v", situation, name, job.Due, want[name])
			}
		}
	}
	check("empty", nil)
	f.Start(t, func(s *engine.ExecutionSpec) { s.Policy = &policy.Execution{AttemptTimeout: 2 * time.Second} })
	f.Create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = fixture.Start.Add(3 * time.Minute) })
	f.Create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = fixture.Start.Add(2 * time.Minute) })
	f.Create(t, func(s *engine.ExecutionSpec) { s.Deadline = fixture.Start.Add(time.Minute) })
	f.Create(t, func(s *engine.ExecutionSpec) {
		s.IdempotencyKey, s.Policy = "key", &policy.Execution{DedupWindow: time.Second}
	})
	due := map[upkeep.Job]time.Time{
		upkeep.JobExpireLeases: fixture.Start.Add(fixture.LeaseTTL), upkeep.JobPromoteDelayed: fixture.Start.Add(2 * time.Minute),
		upkeep.JobExpireAttempts: fixture.Start.Add(2 * time.Second), upkeep.JobExpireDeadlines: fixture.Start.Add(time.Minute),
		upkeep.JobPruneCreationKeys: fixture.Start.Add(time.Second),
	}
	check("with one of each", due)
	foreign := f.Create(t)
	f.SetExecution(t, foreign, fmt.Sprintf("ffx_execution_deadline_ms = NULL, deadline_at_ms = %d", fixture.Start.Add(30*time.Second).UnixMilli()))
	due[upkeep.JobExpireDeadlines] = fixture.Start.Add(30 * time.Second)
	f.Exec(t, `INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms) VALUES (1, gen_random_uuid(), 'success', 1)`)
	f.Exec(t, "INSERT INTO ff_pending_cancel_groups VALUES (1, gen_random_uuid(), gen_random_uuid(), 1)")
	due[upkeep.JobDispatchCompletions], due[upkeep.JobCancelSiblings] = fixture.Start, fixture.Start
	f.Exec(t, "UPDATE ff_completion_event SET committed_at_ms = $1", fixture.Start.UnixMilli())
	due[upkeep.JobRetain] = fixture.Start.Add(7 * 24 * time.Hour)
	check("with what another program left", due)
	late, early := id.NewFlowID(), id.NewFlowID()
	for flow, graceUntil := range map[id.FlowID]any{late: fixture.Start.Add(time.Hour).UnixMilli(), early: nil} {
		f.Insert(t, "ff_cancel_backlog", fixture.Columns{
			"partition_key": fixture.PartitionOf(flow), "flow_id": flow, "requested_at_ms": fixture.Start.Add(time.Second).UnixMilli(),
			"grace_until_ms": graceUntil, "cancellation_policy": "cancel_all",
		}, nil)
	}
	due[upkeep.JobCancelFlows] = fixture.Start.Add(time.Second)
	check("with a cancellation that was asked for", due)
	f.Exec(t, "DELETE FROM ff_cancel_backlog WHERE flow_id = $1", early)
	due[upkeep.JobCancelFlows] = fixture.Start.Add(time.Hour)
	check("with one that has a grace", due)
	f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = 1, committed_at_ms = $1", fixture.Start.Add(-24*time.Hour).UnixMilli())
	f.Exec(t, "DELETE FROM ff_pending_cancel_groups")
	delete(due, upkeep.JobDispatchCompletions)
	delete(due, upkeep.JobCancelSiblings)
	due[upkeep.JobRetain] = fixture.Start.Add(6 * 24 * time.Hour)
	check("with an end of a day ago", due)
	if err := operator.SetLaneRetention(t.Context(), f.Engine, "elsewhere", time.Hour); err != nil {
		t.Fatal(err)
	}
	due[upkeep.JobRetain] = fixture.Start
	check("with a lane that keeps what has ended for an hour", due)
}

func TestTakeJobsReportsLanesWithWork(t *testing.T) {
	f := fixture.NewCloned(t)
	want := func(lanes ...id.LaneID) {
		t.Helper()
		if got := takeJobs(t, f, f.Engine, "holder").Lanes; !slices.Equal(got, lanes) {
			t.Errorf("work on %v, want %v", got, lanes)
		}
		got, err := f.QueuedLanes(t.Context(), []id.LaneID{"empty", f.Lane})
		if err != nil || !slices.Equal(got, lanes) {
			t.Errorf("queued on %v, %v, want %v", got, err, lanes)
		}
	}
	want()
	f.Create(t)
	want(f.Lane)
}

// A process that only asks learns the due times, and leaves the jobs to others.
func TestTakeJobsWithoutAHoldTakesNone(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Create(t)
	ask := upkeep.JobSpec{Holder: "asks", Jobs: allJobs, Lanes: []id.LaneID{f.Lane}}
	for range 2 {
		taken, err := upkeep.Of(f.Engine).TakeJobs(t.Context(), ask)
		if err != nil || len(taken.Jobs) != len(allJobs) || len(taken.Lanes) != 1 {
			t.Fatalf("%+v, %v", taken, err)
		}
		if rows := fixture.Texts(t, f.Pool, "SELECT name FROM ffx_job WHERE holder = 'asks'"); len(rows) != 0 {
			t.Errorf("it holds %q", rows)
		}
		if n := ours(takeJobs(t, f, f.Engine, "takes")); n != len(allJobs)+1 {
			t.Errorf("another gets %d jobs", n)
		}
	}
}

func TestTakeJobsRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	for field, spec := range map[string]upkeep.JobSpec{
		"JobSpec.Holder":   {Hold: time.Second},
		"JobSpec.Hold":     {Holder: "holder", Hold: time.Microsecond},
		"JobSpec.Lanes[1]": {Holder: "holder", Hold: time.Second, Lanes: []id.LaneID{"lane", ""}},
	} {
		_, err := upkeep.Of(f.Engine).TakeJobs(t.Context(), spec)
		fixture.WantInputError(t, err, field)
	}
	_, err := f.QueuedLanes(t.Context(), []id.LaneID{""})
	fixture.WantInputError(t, err, "lanes[0]")
}

// statementCounter counts the statements on the connections of a pool, and those made like them, with the settings
// that travel with a statement.
type statementCounter struct {
	mu   sync.Mutex
	seen []string
}

func (c *statementCounter) note(sql string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, sql)
}

func (c *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.note(data.SQL)
	return ctx
}

func (c *statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *statementCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		c.note(q.SQL)
	}
	return ctx
}

func (c *statementCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *statementCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// of returns the statements sent while call ran.
func (c *statementCounter) of(call func()) []string {
	c.mu.Lock()
	before := len(c.seen)
	c.mu.Unlock()
	call()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen[before:])
}

// A process that has nothing to do, a worker with its defaults on two lanes and all background work, sends at most
// ninety-five statements a minute. Tests on a clock of their own, in packages reconcile and worker, check how often each
// call is made; this one checks the statements of each.
func TestIdleProcessSendsNinetyFiveStatementsAMinute(t *testing.T) {
	f := fixture.NewCloned(t)
	var counter statementCounter
	process := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &counter })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	inTen := 20 // of ten minutes: the listener asks a silent connection whether it is there
	add := func(what string, times int, call func()) {
		t.Helper()
		call() // the first one may prepare something
		sent := len(counter.of(call))
		t.Logf("%s: %d statements, %d times in ten minutes", what, sent, times)
		inTen += times * sent
	}
	add("ask what is to be done", int(10*time.Minute/reconcile.DefaultInterval), func() { takeJobs(t, f, process.Engine, "process") })
	add("sweep to the end", 20, func() {
		_, err := upkeep.Of(process.Engine).RepairQueue(t.Context(), core.MaxSweep)
		must(err)
	})
	add("look for work that nobody takes", 10, func() {
		_, err := process.WaitingKinds(t.Context(), engine.WaitingFilter{Lanes: []id.LaneID{"a", "b"}})
		must(err)
	})
	once := func(act fixture.Job) func() {
		return func() {
			_, err := act(t.Context(), 500)
			must(err)
		}
	}
	// Where there is nothing to delete.
	add("trim the outboxes", 2, once(upkeep.Of(process.Engine).TrimOutboxes))
	add("purge flows", 2, once(upkeep.Of(process.Engine).PurgeFlows))
	add("repair groups", 10, once(upkeep.Of(process.Engine).RepairGroups))
	add("summarise flows", 12, once(upkeep.Of(process.Engine).SummariseFlows))
	add("sweep workers", 10, once(upkeep.Of(process.Engine).SweepWorkers))
	add("prune events of workers", 2, once(upkeep.Of(process.Engine).PruneWorkerEvents))
	add("forget keys of limits", 2, once(upkeep.Of(process.Engine).ForgetLimitKeys))
	add("forget places of fair work", 2, once(upkeep.Of(process.Engine).ForgetFairPlaces))
	name := engine.WorkerName{Instance: "process"}
	if _, err := process.RegisterWorker(t.Context(), engine.WorkerRegistration{WorkerName: name, Worker: "w", Lanes: []id.LaneID{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	add("report presence", int(10*time.Minute/(engine.DefaultWorkerTTL/3)), func() {
		_, err := process.HeartbeatWorker(t.Context(), engine.Heartbeat{WorkerName: name, Worker: "w"})
		must(err)
	})
	if inTen > 950 {
		t.Errorf("%d statements in ten minutes", inTen)
	}
	t.Logf("%d statements in ten minutes", inTen)
}

// Between two polls for jobs an idle worker sends nothing at all.
func TestIdleWorkerOnlyAsksForJobs(t *testing.T) {
	f := fixture.NewCloned(t)
	var counter statementCounter
	process := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &counter })
	w, err := worker.New(process.Engine, worker.Config{Lanes: []worker.Lane{{Name: "a"}, {Name: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(w, engine.Kind[struct{}, struct{}]{Name: "test"}, func(context.Context, worker.Job[struct{}]) (struct{}, error) {
		return struct{}{}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	asked := func() (at []int) {
		counter.mu.Lock()
		defer counter.mu.Unlock()
		for i, sql := range counter.seen {
			if strings.Contains(sql, "name: TakeJobs") {
				at = append(at, i)
			}
		}
		return at
	}
	// On a busy machine an answer comes late, and the worker polls for work itself: it only matters that it need not.
	fixture.Await(t, "three questions in a row", func() bool {
		at := asked()
		for i := 2; i < len(at); i++ {
			if at[i]-at[i-2] == 2 {
				return true
			}
		}
		return false
	})
	cancel()
	running.Wait()
	if n := ours(takeJobs(t, f, f.Engine, "another")); n != len(allJobs)+1 {
		t.Errorf("has given up %d jobs when it stopped", n)
	}
}
