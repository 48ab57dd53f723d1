package steps

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

var asWorker = flag.Bool("steps.worker", false, "be a worker that a test kills, with orders on its standard input")

// orders are the parameters of a worker process, as JSON.
type orders struct {
	DatabaseURL string
	Lane        id.LaneID
}

const workerTTL = time.Minute // of its leases

// effectTables has what the steps of the handler do. A plain step writes its row by a connection of its own, which notes
// whether the step was stored before. The row of a StepTx is written in its transaction.
const effectTables = `
	CREATE TABLE effect (execution uuid, step text, key text, late boolean);
	CREATE TABLE booked (execution uuid, step text, key text)`

var approved = engine.Signal[string]{Name: "approved"}

// beWorker runs a worker until it has completed an execution.
func beWorker(input io.Reader) error {
	var told orders
	if err := json.NewDecoder(input).Decode(&told); err != nil {
		return err
	}
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(told.DatabaseURL)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = string(told.Lane)
	config.MaxConns = 20
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip for each statement
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return err
	}
	for {
		settlement, err := settleOne(ctx, eng, told.Lane, 1)
		if err != nil || settlement == worker.Completed {
			return err
		}
		if _, err := eng.Maintenance().PromoteDelayed(ctx, 10); err != nil {
			return err
		}
	}
}

// settleOne runs a worker without background jobs until it has settled an execution. The steps that are retried fail in so
// many first tries.
func settleOne(ctx context.Context, eng *engine.Engine, lane id.LaneID, failures int) (worker.Settlement, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var settlement worker.Settlement
	hooks := hookFunc(func(report worker.Report) {
		settlement = report.Settlement
		cancel()
	})
	w, err := worker.New(eng, worker.Config{
		Lanes: []id.LaneID{lane}, LeaseTTL: workerTTL, Concurrency: 1, FetchBatch: 2, NoReconcile: true, SharePool: true, Hooks: hooks,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", err
	}
	worker.Handle(w, engine.Kind[struct{}, string]{Name: "order"}, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		return allForms(ctx, job, eng.Pool(), failures)
	})
	return settlement, w.Run(ctx)
}

// hookFunc is called for each outcome.
type hookFunc func(worker.Report)

func (f hookFunc) Begin(ctx context.Context, _ *engine.Claimed) (context.Context, func(worker.Report)) {
	return ctx, f
}

// allSteps are the steps of allForms with their results, sorted.
var allSteps = []string{
	`book="book"`, `flaky="flaky"`, `last="last"`, `nested/book="nested/book"`, `nested/plain="nested/plain"`,
	`nested="nested(nested/plain nested/book)"`, `page/0="page/0"`, `page/1="page/1"`, `page/2="page/2"`, `plain="plain"`,
}

const allResults = "plain flaky nested(nested/plain nested/book) page/0 page/1 page/2 book ada last"

// allForms is a handler with steps of all forms.
func allForms(ctx context.Context, job worker.Job[struct{}], pool *pgxpool.Pool, failures int) (string, error) {
	h := &program{job: job, pool: pool}
	h.plain(ctx, "plain", 0)
	h.plain(ctx, "flaky", failures, worker.Retry(*policy.ImmediateRetries(failures)))
	nested, err := worker.Step(ctx, job, "nested", func(ctx context.Context) (string, error) {
		inner := &program{job: job, pool: pool}
		inner.plain(ctx, worker.Key("nested", "plain"), 0)
		inner.book(ctx, worker.Key("nested", "book"))
		return "nested(" + strings.Join(inner.results, " ") + ")", inner.err
	})
	h.add(nested, err)
	h.parallel(ctx)
	h.book(ctx, "book")
	if h.err == nil {
		h.err = worker.Sleep(ctx, job, "pause", time.Millisecond)
	}
	if h.err == nil {
		h.add(approved.Await(ctx, job, engine.Wait{}))
	}
	h.plain(ctx, "last", 0)
	return strings.Join(h.results, " "), h.err
}

// program collects the results of steps until one fails.
type program struct {
	job     worker.Job[struct{}]
	pool    *pgxpool.Pool
	results []string
	err     error
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
		_, err := tx.Exec(ctx, "INSERT INTO booked VALUES ($1, $2, $3)", h.job.ID.UUID(), name, worker.IdempotencyKey(ctx))
		return name, err
	}))
}
