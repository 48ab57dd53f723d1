package explain

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func unixMilli(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// registered registers the worker of the fixture with some kinds and capabilities.
func registered(t *testing.T, f *place, kinds []string, capabilities ...string) {
	t.Helper()
	f.Register(t, func(w *engine.WorkerRegistration) {
		w.Kinds, w.Capabilities, w.Concurrency, w.Running = kinds, id.NewCapabilities(capabilities...), 2, 2
	})
}

func kind(name string, capabilities ...string) func(*engine.ExecutionSpec) {
	return func(s *engine.ExecutionSpec) {
		s.Kind, s.Policy = name, &policy.Execution{Capabilities: id.NewCapabilities(capabilities...)}
	}
}

func missingWorkersAreNamed(t *testing.T, f *place) {
	x := f.Create(t, kind("reszie"))
	want(t, f, x, explain.NoWorker, true, "No registered worker claims from lane "+string(f.Lane)+".")

	registered(t, f, []string{"resize", "mail"})
	want(t, f, x, explain.NoHandler, true, "1 worker claims from lane", "none handles kind reszie. Similar: resize.")

	gpu := f.Create(t, kind("resize", "cuda12", "gpu"))
	registered(t, f, []string{"resize"}, "gpu")
	want(t, f, gpu, explain.NoCapability, true, "No worker of kind resize has all of {cuda12, gpu}: cuda12 is missing everywhere.")

	if err := operator.DrainWorker(t.Context(), f.Engine, f.Registration().Instance); err != nil {
		t.Fatal(err)
	}
	want(t, f, gpu, explain.WorkersDrained, true, "1 worker of lane")
	f.Advance(time.Hour)
	want(t, f, gpu, explain.NoWorker, true)
}

func executionsInLineAreCounted(t *testing.T, f *place) {
	registered(t, f, nil)
	first := f.Create(t)
	want(t, f, first, explain.AboutToStart, false, "It is the first in lane", "2 of 2 places of its workers are taken.")
	second := f.Create(t)
	want(t, f, second, explain.InLine, false, "1 execution of lane", "is ahead, 0 by priority")
	f.Create(t, func(s *engine.ExecutionSpec) { s.Priority = 10 })
	want(t, f, first, explain.BehindPriority, false, "is ahead, by priority")
	f.Advance(10 * time.Second)
	want(t, f, second, explain.InLine, true, "2 executions of lane", "1 by priority")
}

// The heartbeats tell how fast a lane moves, whether all handlers of the kind are taken, and which handlers are stuck.
func theLoadOfWorkersIsNamed(t *testing.T, f *place) {
	registered(t, f, []string{"resize", "mail"})
	first := f.Create(t, kind("resize"))
	for range 30 {
		f.Create(t, kind("resize"))
	}
	last := f.Create(t, kind("resize"))
	beat := func(after time.Duration, change func(*engine.Heartbeat)) {
		t.Helper()
		f.Advance(after)
		b := f.Beat(2)
		change(&b)
		if _, err := f.HeartbeatWorker(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	beat(10*time.Second, func(b *engine.Heartbeat) { b.Started = map[id.LaneID]int{f.Lane: 50} })
	if c := want(t, f, last, explain.InLine, true); c.Facts["starts_per_minute"] != "" {
		t.Errorf("a rate after ten seconds: %+v", c)
	}
	for range 5 {
		beat(20*time.Second, func(*engine.Heartbeat) {})
	}
	beat(10*time.Second, func(b *engine.Heartbeat) {
		b.Started, b.FullKinds, b.Stuck = map[id.LaneID]int{f.Lane: 20, "other": 900}, []string{"resize"}, 1
	})
	c := want(t, f, last, explain.InLine, true, "31 executions of lane", "2 of 2 places of its workers are taken, 1 by handlers that ignore the end of their context.",
		"All handlers of kind resize are taken.", "At the rate of the last 2 min it starts in about 3 min.")
	for fact, value := range map[string]string{"starts_per_minute": "10.0", "kind_full": "1", "stuck": "1"} {
		if c.Facts[fact] != value {
			t.Errorf("%s is %q, want %q", fact, c.Facts[fact], value)
		}
	}
	want(t, f, first, explain.AboutToStart, true, "It is the first in lane", "All handlers of kind resize are taken.")
	f.Register(t, func(w *engine.WorkerRegistration) {
		w.Instance, w.Concurrency, w.Kinds = id.WorkerInstanceID(f.Name+"-2"), 3, nil
	})
	if c := want(t, f, last, explain.InLine, true, "2 of 5 places"); c.Facts["kind_full"] != "" {
		t.Errorf("one of two workers has a free handler: %+v", c)
	}
}

func aLostQueueEntryIsNoticed(t *testing.T, f *place) {
	registered(t, f, nil)
	x := f.Create(t)
	f.Exec(t, "DELETE FROM ffx_ready")
	want(t, f, x, explain.NoQueueEntry, true, "its queue entry is missing")
}

func aGrantNamesItsWorker(t *testing.T, f *place) {
	f.SeedKey(t, "k1", fixture.Columns{})
	registered(t, f, nil)
	x := f.Create(t)
	f.Issue(t, x)
	want(t, f, x, explain.Granted, false, "It is granted to worker "+f.Name+" for another 60 s.")
	f.Advance(10 * time.Second)
	c := want(t, f, x, explain.Granted, true, "for another 50 s.")
	if c.Facts["worker"] != f.Name || !c.Until.Equal(f.Time().Add(50*time.Second)) {
		t.Errorf("%+v", c)
	}
}

func TestALockedRowNamesItsSession(t *testing.T) {
	f := &place{Fixture: fixture.NewCloned(t)}
	registered(t, f, nil)
	x := f.Create(t)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SET LOCAL application_name = 'ledger-report'")
	fixture.LockExecution(t, tx, x)
	fixture.ExecIn(t, tx, "SELECT pg_current_xact_id()")
	c := causes(t, f, x)[0]
	if c.Code != explain.Locked || c.Facts["application"] != "ledger-report" {
		t.Fatalf("%+v", c)
	}
	t.Log(c.Text)
	fixture.Commit(t, tx)
	want(t, f, x, explain.AboutToStart, false)
}

// Several sessions that share a lock have one id together, which is a guess. Key locks, as of foreign keys, stop no worker.
func TestSharersOfARowAreAGuess(t *testing.T) {
	f := &place{Fixture: fixture.NewCloned(t)}
	registered(t, f, nil)
	x, keyed := f.Create(t), f.Create(t)
	lock := "SELECT FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2 FOR "
	first, second := f.BeginTx(t), f.BeginTx(t)
	for i, tx := range []pgx.Tx{first, second} {
		fixture.ExecIn(t, tx, fmt.Sprintf("SET LOCAL application_name = 'report %d'", i+1))
		fixture.ExecIn(t, tx, lock+"SHARE", x.Partition(), x.UUID())
		fixture.ExecIn(t, tx, lock+"KEY SHARE", keyed.Partition(), keyed.UUID())
	}
	c := want(t, f, x, explain.Locked, false, "report 1", "probably shares a lock on its row with 1 other session; workers pass over it")
	if c.Facts["sharers"] != "2" {
		t.Errorf("%+v", c)
	}
	if got := codes(t, f, keyed); strings.Contains(got, string(explain.Locked)) {
		t.Errorf("%s", got)
	}
	if claimed, err := f.Claim(t.Context(), f.Worker(), 2); err != nil || len(claimed) != 1 || claimed[0].ID != keyed {
		t.Errorf("claimed %+v, %v", claimed, err)
	}
	fixture.Commit(t, first)
	want(t, f, x, explain.Locked, false, "report 2", "probably shares a lock on its row; workers")
	fixture.Commit(t, second)
	want(t, f, x, explain.AboutToStart, false)
}
