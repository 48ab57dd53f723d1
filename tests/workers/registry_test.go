package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// listed returns the registered workers of the fixture's lane.
func listed(t *testing.T, f *fixture.Fixture, change ...func(*engine.WorkerFilter)) []engine.RegisteredWorker {
	t.Helper()
	filter := engine.WorkerFilter{Lane: f.Lane}
	for _, c := range change {
		c(&filter)
	}
	var workers []engine.RegisteredWorker
	for w, err := range f.Workers(t.Context(), filter) {
		if err != nil {
			t.Fatal(err)
		}
		workers = append(workers, w)
	}
	return workers
}

func gone(f *engine.WorkerFilter) { f.Gone = true }

// events returns the kinds of the stored events of the fixture's worker, in their order.
func events(t *testing.T, f *fixture.Fixture) string {
	t.Helper()
	return strings.Join(fixture.Texts(t, f.Pool, fmt.Sprintf(
		`SELECT event_kind || coalesce(': ' || reason, '') FROM ff_worker_registry_event WHERE worker_instance_id = '%s' ORDER BY event_at_ms, event_kind`,
		f.Name)), ", ")
}

// Of two pools that register one instance id at once, the first to commit has it. The other is refused, or has it if the
// first one rolls back. So it is if a former worker with that id has a row whose TTL has passed.
func TestOnePoolWinsAnInstance_B27(t *testing.T) {
	for _, c := range []struct{ commits, expired bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		commits := c.commits
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			f := fixture.New(t)
			if c.expired {
				f.Register(t, func(w *engine.WorkerRegistration) { w.Worker = "a former pool" })
				f.Advance(engine.DefaultWorkerTTL)
			}
			tx, err := f.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WithTx(tx).RegisterWorker(t.Context(), f.Registration()); err != nil {
				t.Fatal(err)
			}
			rival := f.Rival(t)
			other := f.Registration()
			other.Worker = "another pool"
			registers := fixture.Async(t, func(ctx context.Context) error {
				_, err := rival.RegisterWorker(ctx, other)
				return err
			})
			rival.AwaitBlocked(t, f)
			end := tx.Rollback
			if commits {
				end = tx.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			err = registers()
			winner := other.Worker
			if commits {
				winner = f.Registration().Worker
				if !errors.Is(err, fferr.ErrInstanceTaken) || !errors.Is(err, fferr.ErrInvalidInput) {
					t.Errorf("the second pool got %v, want ErrInstanceTaken", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			if got := listed(t, f); len(got) != 1 || got[0].Worker != winner {
				t.Errorf("listed %+v, want one of %s", got, winner)
			}
		})
	}
}

// A registration after the TTL is a new one, whether or not the sweep has run, and whichever pool it is of.
func TestRegisterAfterTheTTLIsFresh_B28(t *testing.T) {
	f := fixture.New(t)
	if !f.Register(t).Fresh {
		t.Error("the first registration is not fresh")
	}
	first := f.Time()
	f.Advance(engine.DefaultWorkerTTL - time.Millisecond)
	if f.Register(t).Fresh {
		t.Error("fresh before the TTL has passed")
	}
	if w := listed(t, f)[0]; !w.RegisteredAt.Equal(first) || !w.HeartbeatAt.Equal(f.Time()) {
		t.Errorf("registered at %v with a heartbeat at %v, want %v and %v", w.RegisteredAt, w.HeartbeatAt, first, f.Time())
	}
	f.Advance(engine.DefaultWorkerTTL)
	if !f.Register(t, func(w *engine.WorkerRegistration) { w.Worker = "another" }).Fresh {
		t.Error("not fresh after the TTL")
	}
	if w := listed(t, f)[0]; w.Worker != "another" || !w.RegisteredAt.Equal(f.Time()) {
		t.Errorf("listed %+v", w)
	}
}

// A heartbeat, the list and the sweep agree on the millisecond at which a worker is no longer live.
func TestHeartbeatAndSweepAgreeOnTheMillisecond_B30(t *testing.T) {
	f := fixture.NewCloned(t)
	expires := f.Register(t).ExpiresAt
	sweep := func(want int) {
		t.Helper()
		if n, err := upkeep.Of(f.Engine).SweepWorkers(t.Context(), 10); err != nil || n != want {
			t.Errorf("swept %d, %v, want %d", n, err, want)
		}
	}
	f.Clock.Store(expires.UnixMilli() - 1)
	sweep(0)
	if len(listed(t, f)) != 1 {
		t.Error("not listed a millisecond before")
	}
	now, err := f.HeartbeatWorker(t.Context(), f.Beat(3))
	if want := f.Time().Add(engine.DefaultWorkerTTL); err != nil || !now.ExpiresAt.Equal(want) {
		t.Errorf("heartbeat: %+v, %v, want until %v", now, err, want)
	}
	f.Clock.Store(now.ExpiresAt.UnixMilli())
	if _, err := f.HeartbeatWorker(t.Context(), f.Beat(3)); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("heartbeat at the end of the TTL: %v", err)
	}
	if got := listed(t, f); len(got) != 0 {
		t.Errorf("listed as live: %+v", got)
	}
	if got := listed(t, f, gone); len(got) != 1 || got[0].Live || got[0].Running != 3 {
		t.Errorf("listed as gone: %+v", got)
	}
	sweep(1)
	sweep(0)
	if got, want := events(t, f), "registered, ttl_swept"; got != want {
		t.Errorf("events %q, want %q: a heartbeat writes none", got, want)
	}
}

// The sweep leaves a row that a registration holds, and judges it again afterwards.
func TestSweepJudgesWorkersUnderTheirLock(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Register(t)
	f.Advance(time.Hour)
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WithTx(tx).RegisterWorker(t.Context(), f.Registration()); err != nil {
		t.Fatal(err)
	}
	if n, err := upkeep.Of(f.Engine).SweepWorkers(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("swept %d, %v, of a locked row", n, err)
	}
	if _, err := f.HeartbeatWorker(t.Context(), f.Beat(1)); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("heartbeat of a worker whose TTL has passed: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := upkeep.Of(f.Engine).SweepWorkers(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("swept %d, %v, of a live worker", n, err)
	}
	if len(listed(t, f)) != 1 {
		t.Error("the worker is not listed")
	}
}

// A worker that registers while the sweep deletes its row waits for that, and is registered afresh.
func TestRegisterDuringTheSweepIsFresh(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits=%v", commits), func(t *testing.T) {
			f := fixture.NewCloned(t)
			f.Register(t)
			f.Advance(engine.DefaultWorkerTTL)
			tx, err := f.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n, err := upkeep.Of(f.WithTx(tx)).SweepWorkers(t.Context(), 10); err != nil || n != 1 {
				t.Fatalf("swept %d, %v", n, err)
			}
			rival := f.Rival(t)
			registers := fixture.Async(t, func(ctx context.Context) error {
				now, err := rival.RegisterWorker(ctx, f.Registration())
				if err == nil && !now.Fresh {
					err = errors.New("not fresh")
				}
				return err
			})
			rival.AwaitBlocked(t, f)
			end := tx.Rollback
			if commits {
				end = tx.Commit
			}
			if err := errors.Join(end(t.Context()), registers()); err != nil {
				t.Error(err)
			}
			if got := listed(t, f); len(got) != 1 || !got[0].RegisteredAt.Equal(f.Time()) {
				t.Errorf("listed %+v, want one, registered now", got)
			}
		})
	}
}

// A heartbeat never waits: of a row that another transaction holds it is ErrBusy.
func TestHeartbeatNeverWaits(t *testing.T) {
	f := fixture.New(t)
	f.Register(t)
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WithTx(tx).MarkWorkerDead(t.Context(), f.Registration().WorkerName, "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.HeartbeatWorker(t.Context(), f.Beat(1)); !errors.Is(err, fferr.ErrBusy) {
		t.Errorf("heartbeat of a locked row: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.HeartbeatWorker(t.Context(), f.Beat(1)); err != nil {
		t.Error(err)
	}
}

// A heartbeat or the removal by one pool leaves another pool's worker alone.
func TestAnotherPoolsWorkerIsLeftAlone(t *testing.T) {
	f := fixture.New(t)
	f.Register(t)
	beat := f.Beat(1)
	beat.Worker = "another"
	if _, err := f.HeartbeatWorker(t.Context(), beat); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("heartbeat: %v", err)
	}
	if err := f.MarkWorkerDead(t.Context(), beat.WorkerName, "another", ""); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("removal: %v", err)
	}
	if err := f.MarkWorkerDead(t.Context(), beat.WorkerName, "", "it hangs"); err != nil {
		t.Error(err)
	}
	var missing *fferr.NotFoundError
	if err := f.MarkWorkerDead(t.Context(), beat.WorkerName, "", ""); !errors.As(err, &missing) || missing.Entity != "worker" {
		t.Errorf("second removal: %v", err)
	}
	f.Advance(1)
	if got, want := events(t, f), "marked_dead: it hangs, registered"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// Events of workers are kept for a week, and heartbeats write none.
func TestWorkerEventsAreKeptForAWeek_B29(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Register(t)
	for range 3 {
		f.Advance(time.Second)
		if _, err := f.HeartbeatWorker(t.Context(), f.Beat(1)); err != nil {
			t.Fatal(err)
		}
	}
	f.Clock.Store(fixture.Start.Add(upkeep.WorkerEventRetention).UnixMilli())
	for i, want := range []int{0, 1, 0} {
		if n, err := upkeep.Of(f.Engine).PruneWorkerEvents(t.Context(), 10); err != nil || n != want {
			t.Errorf("call %d deleted %d, %v, want %d", i, n, err, want)
		}
		f.Advance(time.Millisecond)
	}
}

// A list pages by namespace and instance in byte order. A last page that is full has no cursor.
func TestWorkersAreListedByKey_B30_B34(t *testing.T) {
	f := fixture.New(t)
	names := []engine.WorkerName{
		{Namespace: "default", Instance: "B"},
		{Namespace: "default", Instance: "_"},
		{Namespace: "default", Instance: "a"},
		{Namespace: "default", Instance: "a b"},
		{Namespace: "default", Instance: "é"},
		{Namespace: "other", Instance: "A"},
	}
	for i := range names {
		names[i].Instance = id.WorkerInstanceID(f.Name) + "/" + names[i].Instance
	}
	for _, i := range []int{5, 2, 4, 0, 3, 1} {
		f.Register(t, func(w *engine.WorkerRegistration) {
			w.WorkerName = names[i]
			w.Capabilities = id.Capabilities{"gpu", "arm", "gpu"}
			w.Lanes = []id.LaneID{"z", f.Lane, "z"}
		})
	}
	for _, limit := range []int{1, 2, 3, 4, 6, 7} {
		var got []engine.WorkerName
		pages := 0
		for after := ""; ; {
			page, err := f.ListWorkers(t.Context(), engine.WorkerFilter{Lane: f.Lane}, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range page.Items {
				got = append(got, w.WorkerName)
				if !slices.Equal(w.Capabilities, id.Capabilities{"arm", "gpu"}) || !slices.Equal(w.Lanes, []id.LaneID{f.Lane, "z"}) {
					t.Errorf("%s has %q and %q", w.Instance, w.Capabilities, w.Lanes)
				}
			}
			pages++
			if after = page.Next; after == "" {
				break
			}
		}
		if want := (len(names) + limit - 1) / limit; !slices.Equal(got, names) || pages != want {
			t.Errorf("in pages of %d: %v in %d pages, want %v in %d", limit, got, pages, names, want)
		}
	}
	for name, filter := range map[string]engine.WorkerFilter{
		"default": {Lane: f.Lane, Namespace: "default"}, "other": {Lane: f.Lane, Namespace: "other"},
	} {
		if got, want := len(listed(t, f, func(given *engine.WorkerFilter) { *given = filter })), map[string]int{"default": 5, "other": 1}[name]; got != want {
			t.Errorf("%d workers in namespace %s, want %d", got, name, want)
		}
	}
}

// An invalid field of a registration is named with its limit.
func TestRegistrationsAreChecked(t *testing.T) {
	f := fixture.New(t)
	for _, test := range []struct {
		change func(*engine.WorkerRegistration)
		field  string
		says   string
	}{
		{func(w *engine.WorkerRegistration) { w.Instance = "" }, "instance", "Empty"},
		{func(w *engine.WorkerRegistration) { w.Instance = "a|b" }, "instance", ""},
		{func(w *engine.WorkerRegistration) { w.Namespace = "a\n" }, "namespace", ""},
		{func(w *engine.WorkerRegistration) { w.Worker = "" }, "WorkerRegistration.Worker", ""},
		{func(w *engine.WorkerRegistration) { w.Lanes = nil }, "WorkerRegistration.Lanes", "is empty"},
		{func(w *engine.WorkerRegistration) { w.Lanes = []id.LaneID{"a", "é"} }, "WorkerRegistration.Lanes[1]", ""},
		{func(w *engine.WorkerRegistration) { w.Lanes = make([]id.LaneID, 10_001) }, "WorkerRegistration.Lanes", "10001 lanes, limit 10000"},
		{func(w *engine.WorkerRegistration) { w.Capabilities = id.Capabilities{"a,b"} }, "WorkerRegistration.Capabilities", ""},
		{func(w *engine.WorkerRegistration) { w.Kinds = make([]string, 10_001) }, "WorkerRegistration.Kinds", "10001 kinds, limit 10000"},
		{func(w *engine.WorkerRegistration) { w.Kinds = []string{strings.Repeat("k", 256)} }, "WorkerRegistration.Kinds[0]", "256 bytes, limit 255"},
		{func(w *engine.WorkerRegistration) { w.Concurrency = -1 }, "WorkerRegistration.Concurrency", "-1"},
		{func(w *engine.WorkerRegistration) { w.TTL = time.Microsecond }, "WorkerRegistration.TTL", "1ms and 24h"},
		{func(w *engine.WorkerRegistration) { w.TTL = 24*time.Hour + 1 }, "WorkerRegistration.TTL", "1ms and 24h"},
	} {
		w := f.Registration()
		test.change(&w)
		_, err := f.RegisterWorker(t.Context(), w)
		var input *fferr.InputError
		if !errors.As(err, &input) || input.Field != test.field || !strings.Contains(input.Reason, test.says) {
			t.Errorf("%s %s: %v", test.field, test.says, err)
		}
	}
	if err := f.MarkWorkerDead(t.Context(), f.Registration().WorkerName, "", strings.Repeat("x", 257)); !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), "reason:") {
		t.Errorf("a long reason: %v", err)
	}
	if got := listed(t, f); len(got) != 0 {
		t.Errorf("listed %+v", got)
	}
}

// Drains of a pool and of a lane reach the live workers that match, and show in the list at once.
func TestDrainWorkersByPoolAndLane(t *testing.T) {
	f := fixture.New(t)
	name := func(text string) id.WorkerInstanceID { return id.WorkerInstanceID(f.Name + text) }
	pool := id.WorkerID(f.Name)
	for _, w := range []struct {
		name string
		pool id.WorkerID
		lane id.LaneID
		ttl  time.Duration
	}{
		{"1", pool, f.Lane, 0}, {"2", pool, f.Lane + "+", 0}, {"3", pool + "+", f.Lane, 0}, {"4", pool, f.Lane, time.Millisecond},
	} {
		f.Register(t, func(r *engine.WorkerRegistration) {
			r.Instance, r.Worker, r.Lanes, r.TTL = name(w.name), w.pool, []id.LaneID{w.lane}, w.ttl
		})
	}
	f.Advance(time.Second)
	o := f.Engine
	want := func(what string, got []id.WorkerInstanceID, err error, names ...string) {
		t.Helper()
		slices.Sort(got)
		var wanted []id.WorkerInstanceID
		for _, n := range names {
			wanted = append(wanted, name(n))
		}
		if err != nil || !slices.Equal(got, wanted) {
			t.Errorf("%s: %v, %v, want %v", what, got, err, wanted)
		}
	}
	got, err := operator.DrainWorkers(t.Context(), o, engine.WorkerFilter{Worker: pool})
	want("the pool", got, err, "1", "2")
	got, err = operator.DrainWorkers(t.Context(), o, engine.WorkerFilter{Lane: f.Lane})
	want("the lane: one is drained already, one is gone", got, err, "3")
	for _, w := range listed(t, f) {
		if !w.DrainedSince.Equal(f.Time()) {
			t.Errorf("%s is not listed as drained: %v", w.Instance, w.DrainedSince)
		}
	}
	if now := f.Register(t, func(r *engine.WorkerRegistration) { r.Instance = name("1") }); now.DrainedSince.IsZero() {
		t.Error("a drained worker that registers doesn't learn it")
	}
	beat := f.Beat(0)
	beat.Instance = name("1")
	if now, err := f.HeartbeatWorker(t.Context(), beat); err != nil || now.DrainedSince.IsZero() {
		t.Errorf("a heartbeat doesn't say that the worker is drained: %v, %v", now, err)
	}
	got, err = operator.ResumeWorkers(t.Context(), o, engine.WorkerFilter{Worker: pool, Lane: f.Lane})
	want("both", got, err, "1")
	got, err = operator.ResumeWorkers(t.Context(), o, engine.WorkerFilter{Lane: f.Lane})
	want("the lane", got, err, "3")
	for filter, field := range map[engine.WorkerFilter]string{
		{}: "WorkerFilter", {Worker: pool, Gone: true}: "WorkerFilter.Gone", {Worker: pool, Instance: name("1")}: "WorkerFilter.Instance",
	} {
		var input *fferr.InputError
		if _, err := operator.DrainWorkers(t.Context(), o, filter); !errors.As(err, &input) || input.Field != field {
			t.Errorf("%+v: %v", filter, err)
		}
	}
}

// A heartbeat stores the load, and an invalid field is named with its limit. A new registration has reported nothing yet.
func TestHeartbeatStoresTheLoad(t *testing.T) {
	f := fixture.New(t)
	f.Register(t)
	for _, test := range []struct {
		change func(*engine.Heartbeat)
		field  string
		says   string
	}{
		{func(b *engine.Heartbeat) { b.Running = -1 }, "Heartbeat.Running", "-1"},
		{func(b *engine.Heartbeat) { b.Stuck = -1 }, "Heartbeat.Stuck", "-1"},
		{func(b *engine.Heartbeat) { b.Started = map[id.LaneID]int{"": 1} }, `Heartbeat.Started[""]`, "Empty"},
		{func(b *engine.Heartbeat) { b.Started = map[id.LaneID]int{"a": -1} }, `Heartbeat.Started["a"]`, "-1, not between 0 and 2147483647"},
		{func(b *engine.Heartbeat) { b.FullKinds = make([]string, 10_001) }, "Heartbeat.FullKinds", "10001 kinds, limit 10000"},
		{func(b *engine.Heartbeat) { b.FullKinds = []string{strings.Repeat("k", 256)} }, "Heartbeat.FullKinds[0]", "256 bytes, limit 255"},
	} {
		b := f.Beat(1)
		test.change(&b)
		_, err := f.HeartbeatWorker(t.Context(), b)
		var input *fferr.InputError
		if !errors.As(err, &input) || input.Field != test.field || !strings.Contains(input.Reason, test.says) {
			t.Errorf("%s %s: %v", test.field, test.says, err)
		}
	}
	b := f.Beat(7)
	b.FullKinds, b.Stuck = []string{"resize", "mail", "mail"}, 2
	if _, err := f.HeartbeatWorker(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w := listed(t, f)[0]
	if w.Running != 7 || w.Stuck != 2 || !slices.Equal(w.FullKinds, []string{"mail", "resize"}) {
		t.Errorf("listed %+v", w)
	}
	f.Register(t)
	if w := listed(t, f)[0]; w.Stuck != 0 || len(w.FullKinds) != 0 {
		t.Errorf("registered again: %+v", w)
	}
}
