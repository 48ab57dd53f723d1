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
	hooks := doneHooks{func(outcome worker.Outcome) {
		if outcome.Settlement == worker.Completed && work.Done != nil {
			work.Done()
		}
	}}
	workers, stop := errgroup.WithContext(ctx)
	for i := range max(1, work.Workers) {
		one := worker.New(w.eng, worker.Config{
			Concurrency: work.Concurrency,
			FetchBatch:  work.Batch,
			SettleBatch: work.Batch,
			NoReconcile: i > 0, // once in a process, as in one with a single worker
			Hooks:       hooks,
			Log:         w.log,
		})
		worker.Handle(one, kind, func(_ context.Context, job worker.Job[args]) (struct{}, error) {
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

// doneHooks tells how executions were settled.
type doneHooks struct{ settled func(worker.Outcome) }

// Begin implements [worker.Hooks].
func (h doneHooks) Begin(ctx context.Context, _ *engine.Claimed) (context.Context, func(worker.Outcome)) {
	return ctx, h.settled
}
