package steps

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/worker"
)

var asWorker = flag.Bool("steps.worker", false, "be a worker that a test kills, with orders on its standard input")

// orders are the parameters of a worker process, as JSON.
type orders struct {
	DatabaseURL string
	Lane        id.LaneID
	Execution   id.ExecutionID
	Other       id.ExecutionID // gets signals
}

const (
	workerTTL = time.Minute // of its leases
	patience  = time.Minute // without any settlement
)

// effectTables has what the steps of the handler do. A plain step writes its row by a connection of its own, which notes
// whether the step was stored before. The rows of a StepTx and of a turn are written in its transaction.
const effectTables = `
	CREATE TABLE effect (execution uuid, step text, key text, late boolean);
	CREATE TABLE booked (execution uuid, step text, key text)`

// beWorker runs a worker until an execution has ended.
func beWorker(input io.Reader) error {
	var given orders
	if err := json.NewDecoder(input).Decode(&given); err != nil {
		return err
	}
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(given.DatabaseURL)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = string(given.Lane)
	config.MaxConns = 20
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip for each statement
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	d, err := newDriver(pool, given, 1)
	if err != nil {
		return err
	}
	return d.finish(ctx)
}

// driver lets an execution of allForms go on, by a worker without background jobs.
type driver struct {
	orders
	eng, later *engine.Engine // later has a clock that is ahead
	failures   int            // first tries that fail, of the step that is retried
}

func newDriver(pool *pgxpool.Pool, given orders, failures int) (*driver, error) {
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return nil, err
	}
	later, err := engine.New(pool, engine.Config{Now: func() time.Time { return time.Now().Add(2 * lateTimeout) }})
	return &driver{given, eng, later, failures}, err
}

// finish runs a worker until the execution has ended. After each settlement it does what the execution waits for.
func (d *driver) finish(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	settled, ran := make(chan worker.Settlement, 100), make(chan error, 1)
	hooks := hookFunc(func(x id.ExecutionID, report worker.Report) {
		if x == d.Execution && report.Settlement == worker.Completed {
			cancel()
		}
		settled <- report.Settlement
	})
	w, err := worker.New(d.eng, worker.Config{
		Lanes: []worker.Lane{{Name: d.Lane}}, LeaseTTL: workerTTL, Concurrency: 1, FetchBatch: 2, NoReconcile: true, SharePool: true, Observer: hooks,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	worker.Handle(w, engine.Kind[struct{}, string]{Name: "order"}, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		h := &program{job: job, pool: d.eng.Pool(), lane: d.Lane, other: d.Other}
		return h.allForms(ctx, d.failures)
	})
	worker.Handle(w, singer(d.Lane), func(ctx context.Context, job worker.Job[string]) (string, error) {
		return sing(ctx, job, d.eng.Pool())
	})
	go func() { ran <- w.Run(ctx) }()
	for {
		select {
		case s := <-settled:
			if err := d.advance(ctx, s); err != nil && ctx.Err() == nil {
				cancel()
				return errors.Join(err, <-ran)
			}
		case err := <-ran:
			return err
		case <-time.After(patience): //pace:allow the process of a test that waits would hang
			cancel()
			return errors.Join(errors.New("nothing was settled for a minute"), <-ran)
		}
	}
}

// advance ends what the execution may wait for after a settlement, or after an unknown one: its pause, its timeout, called
// executions that have ended, and the signal that its first turn waits for.
func (d *driver) advance(ctx context.Context, settled worker.Settlement) error {
	m := upkeep.Of(d.later)
	for _, wait := range []struct {
		after worker.Settlement
		end   func(context.Context, int) (int, error)
	}{
		{worker.Delayed, m.PromoteDelayed},
		{worker.Suspended, m.ExpireWaits},
		{worker.Completed, m.ResumeCallers},
		{worker.Suspended, m.ResumeCallers}, // which passes over a caller whose suspension is being written
	} {
		if settled == wait.after || settled == "" {
			if _, err := wait.end(ctx, 10); err != nil {
				return err
			}
		}
	}
	if settled != worker.Suspended && settled != "" {
		return nil
	}
	steps, err := d.eng.Steps(ctx, d.Execution)
	if err != nil || !slices.ContainsFunc(steps, func(s engine.Step) bool { return s.Name == "reserve" }) {
		return err
	}
	err = confirmed.Send(ctx, d.eng, d.Execution, "bob", engine.Once("confirmed"))
	if errors.Is(err, fferr.ErrEnded) {
		return nil
	}
	return err
}

// hookFunc is called for each outcome.
type hookFunc func(id.ExecutionID, worker.Report)

func (f hookFunc) BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	x := work.ID
	return ctx, func(report worker.Report) { f(x, report) }
}

func (hookFunc) BeginPart(ctx context.Context, _ worker.Part) (context.Context, func(worker.PartReport)) {
	return ctx, nil
}
