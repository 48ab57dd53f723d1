package contender

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Worker is this library as programs use it: package worker, its settings the defaults where [Work] asks for nothing.
type Worker struct{ *ours }

// Name implements [Contender].
func (w *Worker) Name() string {
	if !w.history {
		return "worker, lease history and outbox left out"
	}
	return "worker"
}

// Run implements [Contender].
func (w *Worker) Run(ctx context.Context, work Work) error {
	hooks := doneHooks{func(report worker.Report) {
		if report.Settlement == worker.Completed && work.Done != nil {
			work.Done()
		}
	}}
	workers, stop := errgroup.WithContext(ctx)
	for i := range max(1, work.Workers) {
		one, err := worker.New(w.eng, worker.Config{
			Concurrency: work.Concurrency,
			FetchBatch:  work.Batch,
			SettleBatch: work.Batch,
			NoReconcile: i > 0, // once in a process, as in one with a single worker
			Hooks:       hooks,
			Log:         w.log,
		})
		if err != nil {
			return err
		}
		worker.Handle(one, noop, func(_ context.Context, job worker.Job[args]) (struct{}, error) {
			if work.Started != nil {
				work.Started(job.Args.Num)
			}
			return struct{}{}, nil
		})
		workers.Go(func() error {
			// It does not tell when it has started, so its start is counted.
			if work.Begun != nil {
				work.Begun()
			}
			return one.Run(stop)
		})
	}
	return workers.Wait()
}

// noop is the kind of all jobs; their creators know its encoding by heart.
var noop = engine.Kind[args, struct{}]{Name: kind}

// doneHooks tells how executions were settled.
type doneHooks struct{ settled func(worker.Report) }

// Begin implements [worker.Hooks].
func (h doneHooks) Begin(ctx context.Context, _ *engine.Claimed) (context.Context, func(worker.Report)) {
	return ctx, h.settled
}
