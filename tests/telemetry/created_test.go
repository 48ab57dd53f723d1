package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/observe"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// watcher keeps the events of an engine.
type watcher struct {
	mu      sync.Mutex
	created map[string]int // by kind
	others  []observe.Event
	lane    id.LaneID // of the creations
	ctx     context.Context
}

func (*watcher) TraceContext(context.Context) string { return "" }

func (*watcher) BeginCreation(ctx context.Context) context.Context { return ctx }

func (w *watcher) Observe(ctx context.Context, e observe.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx = ctx
	if c, ok := e.(observe.Created); ok {
		w.lane = c.Lane
		w.created[c.Kind] += c.Count
		return
	}
	w.others = append(w.others, e)
}

// take returns the other events since the last call.
func (w *watcher) take() []observe.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.others
	w.others = nil
	return events
}

// want compares the creations since the last call, as "a:1 b:2".
func (w *watcher) want(t *testing.T, want string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.TrimPrefix(fmt.Sprint(w.created), "map"); got != "["+want+"]" {
		t.Errorf("created %s, want [%s]", got, want)
	}
	clear(w.created)
}

func watch(t *testing.T, f *fixture.Fixture) (*fixture.Fixture, *watcher) {
	t.Helper()
	w := &watcher{created: make(map[string]int)}
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Observer: w})
	return f, w
}

// many returns n specs of each kind.
func many(f *fixture.Fixture, n int, kinds ...string) []engine.ExecutionSpec {
	var specs []engine.ExecutionSpec
	for _, kind := range kinds {
		for range n {
			specs = append(specs, engine.ExecutionSpec{Lane: f.Lane, Kind: kind})
		}
	}
	return specs
}

func create(t *testing.T, eng *engine.Engine, specs ...engine.ExecutionSpec) []engine.Created {
	t.Helper()
	outcomes, err := eng.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	created := make([]engine.Created, len(outcomes))
	for i, o := range outcomes {
		if created[i] = o.Value; o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	return created
}

// Each way to insert executions counts the new ones.
func TestCreationsAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		specs func(f *fixture.Fixture) []engine.ExecutionSpec
		want  string
		again string // by a repetition
	}{
		"one":   {func(f *fixture.Fixture) []engine.ExecutionSpec { return many(f, 1, "a") }, "a:1", "a:1"},
		"alike": {func(f *fixture.Fixture) []engine.ExecutionSpec { return many(f, 30, "a", "b") }, "a:30 b:30", "a:30 b:30"},
		"mixed": {func(f *fixture.Fixture) []engine.ExecutionSpec { return many(f, 2, "a", "b", "c") }, "a:2 b:2 c:2", "a:2 b:2 c:2"},
		"with given ids": {func(f *fixture.Fixture) []engine.ExecutionSpec {
			specs := many(f, 20, "a")
			for i := range specs {
				specs[i].ID = id.NewExecutionID(f.Lane, id.Partitions{})
			}
			return append(specs, specs[3], specs[4])
		}, "a:20", ""},
		"with keys": {func(f *fixture.Fixture) []engine.ExecutionSpec {
			specs := many(f, 3, "a")
			for i := range specs {
				specs[i].IdempotencyKey = f.Key(fmt.Sprint(i / 2))
			}
			return specs
		}, "a:2", ""},
		"unique": {func(f *fixture.Fixture) []engine.ExecutionSpec {
			specs := many(f, 4, "a")
			for i := range specs {
				specs[i].Unique, specs[i].Payload = &engine.Unique{ByArgs: true, ByLane: true}, fmt.Append(nil, i/2)
			}
			return specs
		}, "a:2", ""},
		"delayed, with a deadline, fair": {func(f *fixture.Fixture) []engine.ExecutionSpec {
			specs := many(f, 1, "a", "b", "c")
			specs[0].DelayUntil, specs[1].Deadline = f.Time().Add(time.Hour), f.Time().Add(time.Hour)
			specs[2].Fair = engine.FairShare{Tenant: "x"}
			return specs
		}, "a:1 b:1 c:1", "a:1 b:1 c:1"},
		"limited": {func(f *fixture.Fixture) []engine.ExecutionSpec {
			kind := engine.Kind[int, struct{}]{Name: "a", Lane: f.Lane, Limits: []engine.Limit[int]{engine.Concurrency[int](2).Per(string(f.Lane), func(int) string { return "x" })}}
			var specs []engine.ExecutionSpec
			for i := range 15 {
				specs = append(specs, kind.Spec(i))
			}
			return specs
		}, "a:15", "a:15"},
		"refused": {func(f *fixture.Fixture) []engine.ExecutionSpec {
			specs := many(f, 2, "a")
			specs[0].Tags = map[string]string{"": "x"}
			return specs
		}, "a:1", "a:1"},
	} {
		t.Run(name, func(t *testing.T) {
			f, w := watch(t, fixture.New(t))
			specs := test.specs(f)
			for _, want := range []string{test.want, test.again} {
				if _, err := f.CreateExecutions(t.Context(), specs); err != nil {
					t.Fatal(err)
				}
				w.want(t, want)
			}
			if w.lane != f.Lane {
				t.Errorf("lane %q, want %q", w.lane, f.Lane)
			}
			err := f.InTx(t.Context(), func(_ pgx.Tx, eng *engine.Engine) error {
				_, err := eng.CreateExecutions(t.Context(), specs)
				w.want(t, "") // before the commit
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			w.want(t, test.again)
		})
	}
}

// Chunks are transactions of their own. What one has committed counts, whatever becomes of the next.
func TestCreationsInChunksAreCounted(t *testing.T) {
	f, w := watch(t, fixture.NewCloned(t))
	specs := many(f, engine.MaxCreate+1, "a")
	create(t, f.Engine, specs...)
	w.want(t, fmt.Sprintf("a:%d", engine.MaxCreate+1))

	f.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no more'; END $$`)
	f.Exec(t, `CREATE TRIGGER refuse BEFORE INSERT ON ff_exec_core FOR EACH ROW WHEN (NEW.priority = 7) EXECUTE FUNCTION refuse()`)
	specs[len(specs)-1].Priority = 7
	outcomes, err := f.CreateExecutions(t.Context(), specs)
	if err != nil || outcomes[0].Err != nil || outcomes[len(outcomes)-1].Err == nil {
		t.Fatal(err, outcomes[0].Err, outcomes[len(outcomes)-1].Err)
	}
	w.want(t, fmt.Sprintf("a:%d", engine.MaxCreate))
}

// In InTx the commit counts, without rolled back savepoints and inner transactions.
func TestCreationsInTransactionsAreCounted(t *testing.T) {
	f, w := watch(t, fixture.New(t))
	ctx, no := t.Context(), errors.New("no")
	make := func(eng *engine.Engine, kind string) { create(t, eng, engine.ExecutionSpec{Lane: f.Lane, Kind: kind}) }

	err := f.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
		make(eng, "a")
		return no
	})
	w.want(t, "")
	if !errors.Is(err, no) {
		t.Fatal(err)
	}

	err = f.InTx(ctx, func(tx pgx.Tx, eng *engine.Engine) error {
		make(eng, "a")
		make(eng, "a")
		if err := eng.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
			make(eng, "b")
			return nil
		}); err != nil {
			return err
		}
		if err := eng.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
			make(eng, "c")
			return no
		}); !errors.Is(err, no) {
			return fmt.Errorf("got %w", err)
		}
		for _, commits := range []bool{true, false} { // the inner savepoint of one that is rolled back
			outer, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			make(eng.WithTx(outer), "outer")
			inner, err := outer.Begin(ctx)
			if err != nil {
				return err
			}
			make(eng.WithTx(inner), "inner")
			if commits {
				err = inner.Commit(ctx)
			} else {
				err = inner.Rollback(ctx)
			}
			if err != nil {
				return err
			}
			make(eng.WithTx(outer), "outer")
			if err := outer.Rollback(ctx); err != nil {
				return err
			}
		}
		committed, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = committed.Rollback(ctx) }() // no effect
		make(eng.WithTx(committed), "d")
		if err := committed.Commit(ctx); err != nil {
			return err
		}
		left, err := tx.Begin(ctx) // neither released nor rolled back
		if err != nil {
			return err
		}
		make(eng.WithTx(left), "e")
		w.want(t, "")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.want(t, "a:2 b:1 d:1 e:1")

	// The engine doesn't see the commit of a caller's own transaction.
	err = pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) error {
		make(f.WithTx(tx), "a")
		w.want(t, "a:1")
		return no
	})
	w.want(t, "")
	if !errors.Is(err, no) {
		t.Fatal(err)
	}
}

// An insert that begins again, because another transaction has created one of the ids, counts once.
func TestRepeatedInsertsAreCountedOnce(t *testing.T) {
	f, w := watch(t, fixture.New(t))
	rival := f.Rival(t)
	eng := f.EngineOn(t, rival.Pool, engine.Config{Observer: w})
	x := id.NewExecutionID(f.Lane, id.Partitions{})
	specs := many(f, 3, "a")
	specs[0].ID, specs[1].IdempotencyKey, specs[2].IdempotencyKey = x, f.Key("k"), f.Key("k")
	tx := f.BeginTx(t)
	create(t, f.WithTx(tx), engine.ExecutionSpec{ID: x, Lane: f.Lane, Kind: "a"})
	w.want(t, "a:1") // at once: the transaction is the caller's
	wait := fixture.Async(t, func(ctx context.Context) error {
		_, err := eng.CreateExecutions(ctx, specs)
		return err
	})
	rival.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	w.want(t, "a:1")
}

// The context is the operation's.
func TestEventsHaveTheContext(t *testing.T) {
	f, w := watch(t, fixture.New(t))
	if _, err := f.CreateExecution(traced(t.Context(), "00-x"), many(f, 1, "a")[0]); err != nil {
		t.Fatal(err)
	}
	if w.ctx.Value(traceKey{}) != "00-x" {
		t.Error("another context")
	}
}

// Signals are events, duplicates too; refused and rolled back ones are not.
func TestSignalsAreEvents(t *testing.T) {
	f, w := watch(t, fixture.New(t))
	ctx, x := t.Context(), f.Create(t)
	want := func(want ...observe.Event) {
		t.Helper()
		count := make(map[observe.Event]int)
		for _, e := range w.take() {
			count[e]++
		}
		for _, e := range want {
			count[e]--
		}
		maps.DeleteFunc(count, func(_ observe.Event, n int) bool { return n == 0 })
		if len(count) > 0 {
			t.Errorf("more or fewer than wanted: %v", count)
		}
	}
	spec := engine.SignalSpec{Execution: x, Name: "go", ID: id.NewSignalID()}
	for range 2 {
		if _, err := f.Engine.Signal(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	want(observe.Signalled{Name: "go"}, observe.Signalled{Name: "go", Duplicate: true})
	outcomes, err := f.Engine.SignalEach(ctx, []engine.SignalSpec{
		{Execution: x, Name: "stop"}, {Execution: x, Name: "stop"}, spec, {Execution: id.NewExecutionID(f.Lane, id.Partitions{}), Name: "go"},
	})
	if err != nil || !errors.Is(outcomes[3].Err, fferr.ErrNotFound) {
		t.Fatal(outcomes, err)
	}
	want(observe.Signalled{Name: "stop"}, observe.Signalled{Name: "stop"}, observe.Signalled{Name: "go", Duplicate: true})
	if err := f.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
		_, err := eng.Signal(ctx, engine.SignalSpec{Execution: x, Name: "back"})
		return errors.Join(err, errors.New("rolled back"))
	}); err == nil {
		t.Fatal("committed")
	}
	want()
}
