package contender

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Stepper is a contender whose jobs have steps. The steps do nothing and return a number.
type Stepper interface {
	Contender
	// Steps runs n jobs of several steps, one after the other in each, and so many jobs at once. It returns the time from
	// before the creation of the first job until the end of the last one.
	Steps(ctx context.Context, n, steps, atOnce int) (time.Duration, error)
	// LoneSteps runs one job of n steps, and returns how long each took.
	LoneSteps(ctx context.Context, n int) ([]time.Duration, error)
}

// StepBatcher is a contender with storage of steps of several jobs at once.
type StepBatcher interface {
	Contender
	// StepBatches stores n steps of each of size jobs, in n batches, and returns the time.
	StepBatches(ctx context.Context, size, n int) (time.Duration, error)
}

// Resumer is a contender whose jobs go on behind their finished steps.
type Resumer interface {
	Contender
	// Resume runs n jobs of several steps, one at a time. Each is interrupted behind its steps, and runs again. It returns
	// the time of the second run of each up to the same place.
	Resume(ctx context.Context, n, steps int) ([]time.Duration, error)
}

// Turner is a contender with steps in the transaction of a user.
type Turner interface {
	Contender
	// Turns runs n transactions with a write of a user's, one after the other. It returns the time of each.
	Turns(ctx context.Context, n int) ([]time.Duration, error)
}

// usersTable is the table of the writes of Turns.
const usersTable = "create table if not exists bench_turn (num integer not null)"

// userWrite is the write of a turn.
func userWrite(ctx context.Context, tx pgx.Tx, num int) error {
	_, err := tx.Exec(ctx, "insert into bench_turn values ($1)", num)
	return err
}

// stepping is the kind of jobs with steps.
var stepping = engine.Kind[args, struct{}]{Name: "stepping"}

// runStepping runs n jobs of the kind, so many at once, and returns the time, including the creation.
func (w *Worker) runStepping(
	ctx context.Context, n, atOnce int, handler func(ctx context.Context, job worker.Job[args]) (struct{}, error),
) (time.Duration, error) {
	left := make(chan struct{}, n+1)
	done := doneObserver{func(_ id.ExecutionID, report worker.Report) {
		if report.Settlement == worker.Completed {
			left <- struct{}{}
		}
	}}
	one, err := worker.New(w.eng, worker.Config{Concurrency: atOnce, Observer: done, Log: w.log})
	if err != nil {
		return 0, err
	}
	worker.Handle(one, stepping, func(ctx context.Context, job worker.Job[args]) (struct{}, error) {
		if job.Args.Num == warmUp {
			return struct{}{}, nil
		}
		return handler(ctx, job)
	})
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- one.Run(running) }()
	process := func(n, first int) error {
		for from := 0; from < n; from += engine.MaxBatch {
			specs := make([]engine.ExecutionSpec, min(engine.MaxBatch, n-from))
			for i := range specs {
				specs[i] = stepping.Spec(args{Num: first + from + i})
			}
			if _, err := w.eng.CreateExecutions(ctx, specs); err != nil {
				return err
			}
		}
		for range n {
			select {
			case <-left:
			case err := <-ended:
				ended <- err
				return errors.Join(errors.New("the worker ended"), err)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	var took time.Duration
	if err = process(1, warmUp); err == nil { // the worker has started
		began := time.Now()
		err = process(n, 0)
		took = time.Since(began)
	}
	stop()
	return took, errors.Join(err, <-ended)
}

// warmUp is the number of an unmeasured job.
const warmUp = -1

// noStep is a step's empty function.
func noStep(num int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return num, nil }
}

// Steps implements [Stepper].
func (w *Worker) Steps(ctx context.Context, n, steps, atOnce int) (time.Duration, error) {
	return w.runStepping(ctx, n, atOnce, func(ctx context.Context, job worker.Job[args]) (struct{}, error) {
		for num := range steps {
			if _, err := worker.Step(ctx, job, worker.Key("step", num), noStep(num)); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
}

// StepBatches implements [StepBatcher].
func (e *Engine) StepBatches(ctx context.Context, size, n int) (time.Duration, error) {
	if err := e.Insert(ctx, make([]Job, size)); err != nil {
		return 0, err
	}
	c, err := e.claimer()
	if err != nil {
		return 0, err
	}
	held, err := c.Claim(ctx, size)
	if err != nil {
		return 0, err
	}
	records := make([]engine.StepRecord, len(held))
	began := time.Now()
	for num := range n {
		for i := range held {
			records[i] = engine.StepRecord{
				Lease: held[i].Lease, Name: worker.Key("step", num), Seq: num, Result: strconv.AppendInt(nil, int64(num), 10),
			}
		}
		outcomes, err := e.eng.RecordSteps(ctx, records)
		if err != nil {
			return 0, err
		}
		for i := range outcomes {
			if outcomes[i].Err != nil {
				return 0, outcomes[i].Err
			}
		}
	}
	return time.Since(began), nil
}

// LoneSteps implements [Stepper].
func (w *Worker) LoneSteps(ctx context.Context, n int) (took []time.Duration, err error) {
	_, err = w.runStepping(ctx, 1, 1, func(ctx context.Context, job worker.Job[args]) (struct{}, error) {
		for num := range n {
			began := time.Now()
			if _, err := worker.Step(ctx, job, worker.Key("step", num), noStep(num)); err != nil {
				return struct{}{}, err
			}
			took = append(took, time.Since(began))
		}
		return struct{}{}, nil
	})
	return took, err
}

// Resume implements [Resumer].
func (w *Worker) Resume(ctx context.Context, n, steps int) (took []time.Duration, err error) {
	_, err = w.runStepping(ctx, n, 1, func(ctx context.Context, job worker.Job[args]) (struct{}, error) {
		began := time.Now()
		for num := range steps {
			if _, err := worker.Step(ctx, job, worker.Key("step", num), noStep(num)); err != nil {
				return struct{}{}, err
			}
		}
		if job.Lease.Attempt == 0 && !job.Resumed {
			return struct{}{}, job.Delay(0)
		}
		took = append(took, time.Since(began))
		return struct{}{}, nil
	})
	return took, err
}

// Turns implements [Turner].
func (w *Worker) Turns(ctx context.Context, n int) (took []time.Duration, err error) {
	if _, err := w.pool.Exec(ctx, usersTable); err != nil {
		return nil, err
	}
	_, err = w.runStepping(ctx, 1, 1, func(ctx context.Context, job worker.Job[args]) (struct{}, error) {
		for num := range n {
			began := time.Now()
			err := worker.Turn(ctx, job, worker.Key("turn", num), func(ctx context.Context, tx pgx.Tx, _ *worker.TurnTx) error {
				return userWrite(ctx, tx, num)
			})
			if err != nil {
				return struct{}{}, err
			}
			took = append(took, time.Since(began))
		}
		return struct{}{}, nil
	})
	return took, err
}
