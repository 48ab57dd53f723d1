package steps

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

// allSteps are the steps of allForms, sorted, with their outcomes and their results, if those are the same each time.
var allSteps = []string{
	`book success "book"`, `choir success`, `end success`, `flaky success "flaky"`, `last success "last"`,
	`nested success "nested(nested/plain nested/book)"`, `nested/book success "nested/book"`, `nested/plain success "nested/plain"`,
	`page/0 success "page/0"`, `page/1 success "page/1"`, `page/2 success "page/2"`, `pause slept`, `plain success "plain"`,
	`reserve success`, `rest slept`, `signal approved signal`, `signal confirmed signal`, `signal late timeout`, `solo success "HEY"`,
}

const allResults = "plain flaky nested(nested/plain nested/book) page/0 page/1 page/2 book ada late HEY AB bob last"

// The signals that the handler waits for: one comes before its wait, one after, and one never.
var (
	approved  = engine.Signal[string]{Name: "approved"}
	confirmed = engine.Signal[string]{Name: "confirmed"}
	late      = engine.Signal[string]{Name: "late"}
)

// lateTimeout is how long the handler waits for the signal that never comes, by clocks that are ahead.
const lateTimeout = time.Hour

// beside returns the lane of the executions that turns create and send signals to. No worker serves it.
func beside(lane id.LaneID) id.LaneID { return lane + "-other" }

// program is a run of a handler with steps of all forms. It collects the results of steps until one fails.
type program struct {
	job     worker.Job[struct{}]
	pool    *pgxpool.Pool
	other   id.ExecutionID
	lane    id.LaneID
	results []string
	err     error
}

// allForms is a handler with steps of all forms.
func (h *program) allForms(ctx context.Context, failures int) (string, error) {
	h.plain(ctx, "plain", 0)
	h.plain(ctx, "flaky", failures, worker.Retry(*policy.ImmediateRetries(failures)))
	nested, err := worker.Step(ctx, h.job, "nested", func(ctx context.Context) (string, error) {
		inner := &program{job: h.job, pool: h.pool}
		inner.plain(ctx, worker.Key("nested", "plain"), 0)
		inner.book(ctx, worker.Key("nested", "book"))
		return "nested(" + strings.Join(inner.results, " ") + ")", inner.err
	})
	h.add(nested, err)
	h.parallel(ctx)
	h.book(ctx, "book")
	if h.err == nil {
		h.err = worker.Sleep(ctx, h.job, "pause", time.Millisecond)
	}
	h.await(ctx, approved, engine.Wait{})
	h.await(ctx, late, engine.Wait{Timeout: lateTimeout})
	h.call(ctx)
	h.turn(ctx, "reserve", func(t *worker.TurnTx) error { return t.Await(confirmed.Received(), engine.Wait{}) })
	h.await(ctx, confirmed, engine.Wait{})
	h.plain(ctx, "last", 0)
	h.turn(ctx, "rest", func(t *worker.TurnTx) error { return t.Sleep(time.Millisecond) })
	h.turn(ctx, "end", func(t *worker.TurnTx) error { return t.Complete(strings.Join(h.results, " ")) })
	return "", h.err
}

func (h *program) add(result string, err error) {
	if h.err == nil {
		h.results, h.err = append(h.results, result), err
	}
}

// plain is a step that fails in its first tries, after its effect.
func (h *program) plain(ctx context.Context, name string, failures int, options ...worker.StepOption) {
	if h.err != nil {
		return
	}
	h.add(worker.Step(ctx, h.job, name, func(ctx context.Context) (string, error) {
		_, err := h.pool.Exec(ctx, `INSERT INTO effect SELECT $1, $2, $3, EXISTS (
			SELECT FROM ffx_step WHERE partition_key = $4 AND execution_id = $1 AND name = $2)`,
			h.job.ID.UUID(), name, worker.IdempotencyKey(ctx), h.job.ID.Partition())
		if err == nil && failures > 0 {
			failures--
			err = errors.New("not yet")
		}
		return name, err
	}, options...))
}

// parallel is three plain steps at once.
func (h *program) parallel(ctx context.Context) {
	if h.err != nil {
		return
	}
	var wg sync.WaitGroup
	pages := make([]program, 3)
	for i := range pages {
		pages[i] = program{job: h.job, pool: h.pool}
		wg.Go(func() { pages[i].plain(ctx, worker.Key("page", i), 0) })
	}
	wg.Wait()
	for _, page := range pages {
		h.add(strings.Join(page.results, ""), page.err)
	}
}

func (h *program) book(ctx context.Context, name string) {
	if h.err != nil {
		return
	}
	h.add(worker.StepTx(ctx, h.job, name, func(ctx context.Context, tx pgx.Tx) (string, error) {
		return name, insertBooked(ctx, tx, h.job, name)
	}))
}

func insertBooked(ctx context.Context, tx pgx.Tx, job worker.Job[struct{}], name string) error {
	_, err := tx.Exec(ctx, "INSERT INTO booked VALUES ($1, $2, $3)", job.ID.UUID(), name, worker.IdempotencyKey(ctx))
	return err
}

// await is a wait. The result of one that has timed out is the name of its signal.
func (h *program) await(ctx context.Context, signal engine.Signal[string], wait engine.Wait) {
	if h.err != nil {
		return
	}
	value, err := signal.Await(ctx, h.job, wait)
	if errors.Is(err, fferr.ErrWaitTimeout) {
		value, err = signal.Name, nil
	}
	h.add(value, err)
}

// call is a call of one execution, and then of two.
func (h *program) call(ctx context.Context) {
	if h.err == nil {
		h.add(worker.Call(ctx, h.job, "solo", singer(h.lane), "hey"))
	}
	if h.err == nil {
		choir, err := worker.CallAll(ctx, h.job, "choir", singer(h.lane), []string{"a", "b"})
		h.add(strings.Join(choir, ""), err)
	}
}

func singer(lane id.LaneID) engine.Kind[string, string] {
	return engine.Kind[string, string]{Name: "singer", Lane: lane}
}

// sing is the handler of the called executions.
func sing(ctx context.Context, job worker.Job[string], pool *pgxpool.Pool) (string, error) {
	_, err := pool.Exec(ctx, "INSERT INTO effect VALUES ($1, 'sing', '', false)", job.ID.UUID())
	return strings.ToUpper(job.Args), err
}

// turn is a turn that books, creates an execution, sends a signal, and ends as its argument says.
func (h *program) turn(ctx context.Context, name string, end func(*worker.TurnTx) error) {
	if h.err != nil {
		return
	}
	h.err = worker.Turn(ctx, h.job, name, func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
		if err := insertBooked(ctx, tx, h.job, name); err != nil {
			return err
		}
		if _, err := t.Engine().CreateExecution(ctx, engine.ExecutionSpec{Lane: beside(h.lane), Kind: "child of " + name}); err != nil {
			return err
		}
		if err := confirmed.Send(ctx, t.Engine(), h.other, "", engine.From("turn", name)); err != nil {
			return err
		}
		return end(t)
	})
}
