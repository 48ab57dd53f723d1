package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Signaller is a contender whose jobs can wait for signals.
type Signaller interface {
	Contender
	// Wait runs n jobs with one wait for a signal each, and returns once all wait. received is called when a job has the
	// signal; concurrently.
	Wait(ctx context.Context, n int, received func(num int)) (Waits, error)
}

// Waits are jobs with a wait for a signal, numbered from 0.
type Waits interface {
	Signal(ctx context.Context, num int) error
	// SignalAll sends a signal to each of several jobs, in one transaction.
	SignalAll(ctx context.Context, nums []int) error
	// Stop ends the workers.
	Stop() error
}

// waiting is the kind of waiting jobs, and proceed the signal.
var (
	waiting = engine.Kind[args, struct{}]{Name: "waiting"}
	proceed = engine.Signal[int]{Name: "proceed"}
)

// ourWaits are jobs of the library.
type ourWaits struct {
	eng        *engine.Engine
	executions []id.ExecutionID
	stop       context.CancelFunc
	ended      chan error
}

// Wait implements [Signaller].
func (w *Worker) Wait(ctx context.Context, n int, received func(num int)) (Waits, error) {
	one, err := worker.New(w.eng, worker.Config{Log: w.log})
	if err != nil {
		return nil, err
	}
	worker.Handle(one, waiting, func(ctx context.Context, job worker.Job[args]) (struct{}, error) {
		if _, err := proceed.Await(ctx, job, engine.Wait{}); err != nil {
			return struct{}{}, err
		}
		received(job.Args.Num)
		return struct{}{}, nil
	})
	running, stop := context.WithCancel(ctx)
	waits := &ourWaits{eng: w.eng, stop: stop, ended: make(chan error, 1)}
	go func() { waits.ended <- one.Run(running) }()
	if err := waits.begin(ctx, w, n); err != nil {
		return nil, errors.Join(err, waits.Stop())
	}
	return waits, nil
}

// begin creates the jobs and waits until all wait.
func (w *ourWaits) begin(ctx context.Context, c *Worker, n int) error {
	w.executions = make([]id.ExecutionID, 0, n)
	for len(w.executions) < n {
		specs := make([]engine.ExecutionSpec, min(engine.MaxBatch, n-len(w.executions)))
		for i := range specs {
			specs[i] = waiting.Spec(args{Num: len(w.executions) + i})
		}
		created, err := w.eng.CreateExecutions(ctx, specs)
		if err != nil {
			return err
		}
		for i := range created {
			w.executions = append(w.executions, created[i].Value.ID)
		}
	}
	return c.awaitWaits(ctx, n)
}

// awaitWaits returns once n jobs of the worker wait.
func (w *Worker) awaitWaits(ctx context.Context, n int) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		var wait int
		err := w.pool.QueryRow(ctx, "select count(*) from ff_suspension_current where ffx_open_since_ms > $1", seededSinceMs).Scan(&wait)
		if err != nil || wait == n {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}

func (w *ourWaits) Signal(ctx context.Context, num int) error {
	return proceed.Send(ctx, w.eng, w.executions[num], num)
}

func (w *ourWaits) SignalAll(ctx context.Context, nums []int) error {
	specs := make([]engine.SignalSpec, len(nums))
	for i, num := range nums {
		var err error
		if specs[i], err = proceed.Spec(w.executions[num], num); err != nil {
			return err
		}
	}
	outcomes, err := w.eng.SignalEach(ctx, specs)
	for i := range outcomes {
		err = errors.Join(err, outcomes[i].Err)
	}
	return err
}

func (w *ourWaits) Stop() error {
	w.stop()
	return <-w.ended
}

// seededSinceMs is the time since when the rows of SeedWaits wait.
const seededSinceMs = 1

// SeedWaits adds n rows of waits to each table of waits, copied from the wait of one job, and analyzes the tables.
func (w *Worker) SeedWaits(ctx context.Context, n int) error {
	waits, err := w.Wait(ctx, 1, func(int) {})
	if err != nil {
		return err
	}
	if err := waits.Stop(); err != nil {
		return err
	}
	if _, err := w.pool.Exec(ctx, "update ff_suspension_current set ffx_open_since_ms = $1", seededSinceMs); err != nil {
		return err
	}
	const execution, waitpoint = "md5('x' || copy)::uuid", "md5('w' || copy)::uuid"
	for table, instead := range map[string]map[string]string{
		"ff_exec_core":          {"partition_key": "copy % 256", "execution_id": execution},
		"ff_attempt":            {"partition_key": "copy % 256", "execution_id": execution},
		"ff_suspension_current": {"partition_key": "copy % 256", "execution_id": execution, "ffx_primary_waitpoint_id": waitpoint},
		"ff_waitpoint_pending":  {"partition_key": "copy % 256", "execution_id": execution, "waitpoint_id": waitpoint},
	} {
		if err := multiply(ctx, w.pool, table, n, instead); err != nil {
			return fmt.Errorf("seed %s: %w", table, err)
		}
		if _, err := w.pool.Exec(ctx, "analyze "+table); err != nil {
			return err
		}
	}
	return nil
}
