package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/console"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

var once = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}

// ticked is the last tick of the schedule. The next one is weeks away, so that no test meets it.
var ticked = time.Now().UTC().Truncate(time.Minute).Add(-time.Hour)

// The kinds of the world.
var (
	greet  = engine.Kind[string, string]{Name: "greet", Lane: "mail"}
	broken = engine.Kind[string, string]{Name: "broken", Lane: "mail", Policy: once}
	ask    = engine.Kind[string, string]{Name: "ask", Lane: "mail"}
	hold   = engine.Kind[string, string]{
		Name: "hold", Lane: "sync", Limits: []engine.Limit[string]{engine.Concurrency[string](1).Per("tenant", func(s string) string { return s })},
	}
	lonely = engine.Kind[string, string]{Name: "lonely", Lane: "nobody"}
	keyed  = engine.Kind[string, string]{
		Name: "keyed", Lane: "nobody", Limits: []engine.Limit[string]{engine.Concurrency[string](1).Per("number", func(s string) string { return s })},
	}
)

// world is a database with work in every state, a running worker, and the console.
type world struct {
	pool   *pgxpool.Pool
	url    string // of the database
	eng    *engine.Engine
	base   string // of the console
	person atomic.Pointer[console.Access]

	greeted, failed, asking, holding, limited, waiting id.ExecutionID
	flow                                               id.FlowID
	budget                                             id.BudgetID
}

// text is what people have typed into every field.
func newWorld(t *testing.T, text string) *world {
	t.Helper()
	t.Parallel()
	w := &world{url: pgtest.CloneURL(t)}
	pool, err := pgxpool.New(t.Context(), w.url)
	must(t, err)
	t.Cleanup(pool.Close)
	w.pool = pool
	w.eng = w.serve(t, pool)
	w.person.Store(&console.Access{Name: text, Actions: console.Actions()})
	w.work(t, text)
	w.fill(t, text)
	return w
}

// serve serves the pages by an engine on a pool, and returns the engine.
func (w *world) serve(t *testing.T, pool *pgxpool.Pool) *engine.Engine {
	t.Helper()
	eng, err := engine.New(pool, engine.Config{})
	must(t, err)
	server := httptest.NewServer(console.Handler(eng, console.Config{
		Path: "/", Authorize: func(*http.Request) (console.Access, error) { return *w.person.Load(), nil },
		Redact: func(_ string, payload []byte) []byte {
			return bytes.ReplaceAll(payload, []byte("secret"), []byte("…"))
		},
	}))
	t.Cleanup(server.Close)
	w.base = server.URL + "/"
	return eng
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// work runs a worker until the end of the test.
func (w *world) work(t *testing.T, text string) {
	t.Helper()
	wk, err := worker.New(w.eng, worker.Config{Lanes: []worker.Lane{{Name: "mail"}, {Name: "sync"}}})
	must(t, err)
	over := make(chan struct{}) // ends the handlers that hold a place
	worker.Handle(wk, greet, func(ctx context.Context, job worker.Job[string]) (string, error) {
		name, err := worker.Step(ctx, job, "look up "+job.Args, func(ctx context.Context) (string, error) {
			return job.Args, job.Stream().WriteFrame(ctx, stream.FrameSpec{Type: stream.Log, Payload: []byte("looking up " + job.Args)})
		})
		return "hello " + name, err
	})
	worker.Handle(wk, broken, func(context.Context, worker.Job[string]) (string, error) {
		return "", errors.New(text + "\nsecond line")
	})
	worker.Handle(wk, ask, func(ctx context.Context, job worker.Job[string]) (string, error) {
		signal, err := engine.AwaitAny(ctx, job, engine.Wait{Timeout: time.Hour, Asked: "Publish " + job.Args + "?"},
			engine.Received("approved"), engine.Received("rejected"))
		if err != nil {
			return "", err
		}
		return signal.Name + " by " + signal.Source, nil
	})
	worker.Handle(wk, hold, func(ctx context.Context, _ worker.Job[string]) (string, error) {
		select {
		case <-ctx.Done():
		case <-over:
		}
		return "", ctx.Err()
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- wk.Run(ctx) }()
	t.Cleanup(func() {
		close(over)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the worker ended: %v", err)
		}
	})
}

// fill creates work in every state.
func (w *world) fill(t *testing.T, text string) {
	t.Helper()
	ctx := t.Context()
	create := func(kind engine.Kind[string, string], args string, options ...engine.CreateOption) id.ExecutionID {
		t.Helper()
		created, err := kind.Create(ctx, w.eng, args, options...)
		must(t, err)
		return created.ID
	}
	w.greeted = create(greet, text, engine.WithTag("app.note", text))
	w.failed = create(broken, text)
	w.asking = create(ask, text)
	w.holding = create(hold, text)
	w.waiting = create(lonely, text)
	w.await(t, w.greeted, state.PublicCompleted)
	w.await(t, w.failed, state.PublicFailed)
	w.await(t, w.asking, state.PublicSuspended)
	w.await(t, w.holding, state.PublicActive)
	w.limited = create(hold, text)

	flow, err := w.eng.CreateFlow(ctx, engine.FlowSpec{
		Kind: text, Nodes: []engine.Node{
			{Key: text, Spec: greet.Spec("a")}, {Key: "b", Spec: greet.Spec("b")}, {Key: "c", Spec: lonely.Spec("c"), When: policy.AllOf()},
		},
		Edges: []engine.Edge{{From: text, To: "c"}, {From: "b", To: "c"}},
	})
	must(t, err)
	w.flow = flow.ID
	stopped := engine.WithSequence(engine.Sequence{Key: text})
	first := create(broken, text, stopped)
	create(greet, "after", stopped)
	w.await(t, first, state.PublicFailed)
	created, err := budget.Create(ctx, w.eng, budget.Spec{Key: text, Limits: map[string]budget.Limit{"tokens": {Hard: 1000, Soft: 500}}})
	must(t, err)
	w.budget = created.ID
	_, err = budget.Report(ctx, w.eng, budget.Usage{Budget: created.ID, Amounts: map[string]int64{"tokens": 700}})
	must(t, err)
	fixture.Await(t, "a background job", func() bool {
		for job, err := range operator.Jobs(ctx, w.eng) {
			must(t, err)
			return job.Held
		}
		return false
	})
	_, err = schedule.Declare(ctx, w.eng, schedule.Set{
		Name: "reports", Vanished: schedule.RemoveVanished,
		Schedules: []schedule.Spec{schedule.Of(lonely, text, text, schedule.Spec{Every: 30 * 24 * time.Hour, Start: ticked})},
	})
	must(t, err)
}

// await waits for a state of an execution.
func (w *world) await(t *testing.T, x id.ExecutionID, want state.PublicState) {
	t.Helper()
	fixture.Await(t, fmt.Sprintf("%s to be %s", x, want), func() bool {
		got, err := w.eng.ExecutionState(t.Context(), x)
		must(t, err)
		return got == want
	})
}

// text returns the result of a query, "" without a row or for a NULL.
func (w *world) text(t *testing.T, query string) string {
	t.Helper()
	var text *string
	if err := w.pool.QueryRow(t.Context(), query).Scan(&text); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", query, err)
	}
	if text == nil {
		return ""
	}
	return *text
}
