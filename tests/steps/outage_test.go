package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
	"github.com/flowfabric/flowfabric-go/worker"
)

// fewestTrips is about how many round trips the operations of everyCall take.
const fewestTrips = 40

// everyCall is a handler with each operation of a job that reaches the database.
type everyCall struct {
	outage *fixture.Outage
	budget id.BudgetID
	lane   id.LaneID
}

func (h *everyCall) handle(ctx context.Context, job orderJob) (string, error) {
	h.outage.Begin()
	defer h.outage.End()
	if err := job.Progress(ctx, 50, "half"); err != nil {
		return "", err
	}
	if _, err := job.Upstreams(ctx); err != nil {
		return "", err
	}
	if _, err := worker.Step(ctx, job, "spend", func(ctx context.Context) (string, error) { return "spent", h.spend(ctx, job) }); err != nil {
		return "", err
	}
	if _, err := worker.Step(ctx, job, "link", func(ctx context.Context) (string, error) {
		_, err := job.Waitpoint(ctx, "confirmed", 24*time.Hour)
		return "linked", err
	}); err != nil {
		return "", err
	}
	if _, err := worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (string, error) {
		return "booked", insertBooked(ctx, tx, job, "book")
	}); err != nil {
		return "", err
	}
	if err := worker.Sleep(ctx, job, "pause", time.Millisecond); err != nil {
		return "", err
	}
	if _, err := approved.Await(ctx, job, engine.Wait{}); err != nil {
		return "", err
	}
	solo, err := worker.Call(ctx, job, "solo", singer(h.lane), "a")
	if err != nil {
		return "", err
	}
	choir, err := worker.CallAll(ctx, job, "choir", singer(h.lane), []string{"b", "c"})
	if err != nil {
		return "", err
	}
	if err := h.turn(ctx, job, "take", func(ctx context.Context, x *worker.TurnTx) error {
		_, _, err := late.Take(ctx, x)
		return err
	}); err != nil {
		return "", err
	}
	if err := h.turn(ctx, job, "rest", func(_ context.Context, x *worker.TurnTx) error { return x.Sleep(time.Millisecond) }); err != nil {
		return "", err
	}
	if err := h.turn(ctx, job, "ask", func(_ context.Context, x *worker.TurnTx) error {
		return x.Await(confirmed.Received(), engine.Wait{})
	}); err != nil {
		return "", err
	}
	by, err := confirmed.Await(ctx, job, engine.Wait{})
	if err != nil {
		return "", err
	}
	return "", h.turn(ctx, job, "end", func(_ context.Context, x *worker.TurnTx) error {
		return x.Complete(strings.Join(append(choir, solo, by), " "))
	})
}

func (h *everyCall) spend(ctx context.Context, job orderJob) error {
	held, err := job.Reserve(ctx, h.budget, map[string]int64{"a": 5})
	if err != nil {
		return err
	}
	if _, err := held.Settle(ctx, map[string]int64{"a": 3}); err != nil {
		return err
	}
	_, err = job.ReportUsage(ctx, budget.Usage{Budget: h.budget, Amounts: map[string]int64{"a": 2}})
	return err
}

func (h *everyCall) turn(ctx context.Context, job orderJob, name string, end func(context.Context, *worker.TurnTx) error) error {
	return worker.Turn(ctx, job, name, func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
		if err := insertBooked(ctx, tx, job, name); err != nil {
			return err
		}
		return end(ctx, x)
	})
}

// An outage at any statement of any operation of a handler fails nothing, with retries or without: the operation is repeated
// until the database is back, and happens once. W5. Most of the time is pauses before repetitions, so several workers of one
// database have their outages at once.
func TestOutagesFailNoHandler(t *testing.T) {
	const workers = 6
	f := fixture.NewCloned(t)
	f.Exec(t, effectTables)
	f.SeedKey(t, "k1", fixture.Columns{})
	for first := 1; first <= workers; first++ {
		t.Run(fmt.Sprintf("round trips from %d", first), func(t *testing.T) {
			t.Parallel()
			outagesFailNoHandler(t, f, first, workers)
		})
	}
}

// outagesFailNoHandler lets one worker lose the database at round trip first, first+every and so on, until an execution ends
// before the next.
func outagesFailNoHandler(t *testing.T, f *fixture.Fixture, first, every int) {
	outage, pool := fixture.NewOutage(t, f.Url)
	c := fixture.CrewOn(t, fixture.On(t, pool, f.Url), engine.Config{NoListener: true})
	calm := fixture.CrewOn(t, fixture.On(t, f.Pool, f.Url), engine.Config{})
	h := &everyCall{outage: outage, lane: c.Lane}
	c.Work(t, worker.Config{NoReconcile: true, Concurrency: 1, LeaseTTL: workerTTL}, func(w *worker.Worker) {
		fixture.HandleKind(w, "order", h.handle)
		worker.Handle(w, singer(c.Lane), func(_ context.Context, job worker.Job[string]) (string, error) {
			return strings.ToUpper(job.Args), nil
		})
	})
	run := func(form fixture.OutageForm, trip, refusals int, retry *policy.Retry) (met bool) {
		t.Helper()
		outage.Set(form, trip, refusals)
		defer func() {
			if t.Failed() {
				t.Logf("outage of form %d at round trip %d", form, trip)
			}
		}()
		h.orders(t, c, calm, retry)
		return outage.Met()
	}
	none := &policy.Retry{MaxRetries: policy.NoRetries}
	trip := first
	for ; ; trip += every {
		form := fixture.OutageForm(trip) % fixture.OutageForms
		met := run(form, trip, trip%4, none)
		for other := range soak.Size(t, 0, int(fixture.OutageForms)) {
			run(fixture.OutageForm(other), trip, 2, none)
			run(fixture.OutageForm(other), trip, 2, nil)
		}
		if !met {
			break
		}
	}
	if trip < fewestTrips {
		t.Errorf("%d round trips, want %d or more", trip, fewestTrips)
	}
}

// orders runs an execution of everyCall to its end, and checks what it has done.
func (h *everyCall) orders(t *testing.T, c, calm *fixture.Crew, retry *policy.Retry) {
	t.Helper()
	created, err := budget.Create(t.Context(), calm.Eng, budget.Spec{Limits: map[string]budget.Limit{"a": {Hard: 6}}})
	if err != nil {
		t.Fatal(err)
	}
	h.budget = created.ID
	x := calm.Create(t, func(s *engine.ExecutionSpec) {
		s.Kind, s.Lane, s.Policy = "order", c.Lane, &policy.Execution{Retry: retry}
	})
	for _, signal := range []engine.Signal[string]{approved, late, confirmed} {
		if err := signal.Send(t.Context(), calm.Eng, x, signal.Name); err != nil {
			t.Fatal(err)
		}
	}
	d := driver{orders: orders{Lane: c.Lane, Execution: x}, eng: calm.Eng}
	if d.later, err = engine.New(calm.Pool, engine.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }}); err != nil {
		t.Fatal(err)
	}
	const calledBy = "SELECT partition_key || '-' || execution_id FROM ff_exec_core WHERE ffx_caller ->> 'execution_id' = $1"
	defer func() {
		if !t.Failed() {
			return
		}
		t.Log(calm.Dump(t, x))
		for _, called := range fixture.Texts(t, calm.Pool, calledBy, x.UUID().String()) {
			y, err := id.ParseExecutionID(called)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(calm.Dump(t, y))
		}
	}()
	for ended := false; !ended; {
		// The background work skips locked rows, and looks at them again.
		var s fixture.Settled
		progress.Until(t, "another execution to be settled", func() bool {
			c.Eng.Wake(c.Lane)
			if err := d.advance(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			select {
			case s = <-c.Settled:
				return true
			default:
				return false
			}
		})
		switch ended = s.ID == x && s.Settlement == worker.Completed; s.Settlement {
		case worker.Completed, worker.Delayed, worker.Suspended:
		case worker.Abandoned:
			// It was settled, the answer was lost, and it has begun again. A lease that is lost indeed stops the test, where no
			// lease expires.
			if !errors.Is(s.Err, worker.ErrLeaseLost) {
				t.Fatal(s.Err)
			}
		default:
			t.Fatalf("%s of %s: %v", s.Settlement, s.Kind, s.Err)
		}
	}
	if got := string(calm.Stored(t, x).Result); got != `"B C A confirmed"` {
		t.Errorf("the result is %s", got)
	}
	booked := fixture.Texts(t, calm.Pool, "SELECT step FROM booked WHERE execution = $1 ORDER BY step", x.UUID())
	if want := []string{"ask", "book", "end", "rest", "take"}; !slices.Equal(booked, want) {
		t.Errorf("booked %q, want %q", booked, want)
	}
	budget, err := budget.Get(t.Context(), calm.Eng, h.budget)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(budget.Usage, budget.Reserved); got != "map[a:5] map[a:0]" && got != "map[a:5] map[]" {
		t.Errorf("usage and reservations %s", got)
	}
	if n := len(fixture.Texts(t, calm.Pool, calledBy, x.UUID().String())); n != 3 {
		t.Errorf("%d called executions", n)
	}
}

// Restarts of the server fail no caller, no called execution and no transaction of a step. W5.
func TestRestartsFailNoCaller(t *testing.T) {
	t.Parallel()
	const callers = 60
	server := fixture.NewServer(t)
	pool := fixture.OpenPool(t, server.URL, nil)
	c := fixture.CrewOn(t, fixture.On(t, pool, server.URL), engine.Config{})
	c.Exec(t, effectTables)
	for i := range callers {
		c.Create(t, func(s *engine.ExecutionSpec) {
			s.Kind = "order"
			if i%2 == 0 {
				s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
			}
		})
	}
	began := make(chan struct{}, 10*callers)
	c.Work(t, worker.Config{Concurrency: 8, LeaseTTL: workerTTL}, func(w *worker.Worker) {
		fixture.HandleKind(w, "order", func(ctx context.Context, job orderJob) (string, error) {
			began <- struct{}{}
			_, err := worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (string, error) {
				return "booked", insertBooked(ctx, tx, job, "book")
			})
			if err != nil {
				return "", err
			}
			return worker.Call(ctx, job, "solo", singer(c.Lane), "a")
		})
		worker.Handle(w, singer(c.Lane), func(_ context.Context, job worker.Job[string]) (string, error) {
			began <- struct{}{}
			return strings.ToUpper(job.Args), nil
		})
	})
	for i, mode := range []string{"fast", "immediate", "fast"} {
		for range []int{5, 40, 60}[i] {
			fixture.Received(t, began)
		}
		server.Restart(t, mode)
	}
	for completed := 0; completed < callers; {
		switch s := c.Next(t, 1)[0]; s.Settlement {
		case worker.Completed:
			if s.Kind == "order" {
				completed++
			}
		case worker.Suspended:
		default:
			t.Fatalf("%s of %s: %v", s.Settlement, s.Kind, s.Err)
		}
	}
	if n := len(fixture.Texts(t, c.Pool, "SELECT step FROM booked")); n != callers {
		t.Errorf("%d booked", n)
	}
}
