package contender

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Worker is the library as used by programs: package worker, with defaults unless [Work] sets something.
type Worker struct {
	*ours
	as   string // note on the kind
	kind Kind   // of the jobs; without a name the plain one

	instrument func(*worker.Config) error // nil: no telemetry
}

// Name implements [Contender].
func (w *Worker) Name() string {
	name := "worker"
	for _, note := range []string{w.note, w.as} {
		if note != "" {
			name += ", " + note
		}
	}
	return name
}

// Run implements [Contender].
func (w *Worker) Run(ctx context.Context, work Work) error {
	workers, stop := errgroup.WithContext(ctx)
	var nums sync.Map // numbers of the jobs to report, by execution
	done := doneObserver{func(x id.ExecutionID, report worker.Report) {
		if report.Settlement != worker.Completed {
			return
		}
		if work.Committed != nil {
			if n, ok := nums.Load(x); ok {
				work.Committed(n.(int))
			}
		}
		if work.Done != nil {
			work.Done()
		}
	}}
	if work.Received != nil {
		sub, err := events.Subscribe(stop, w.eng, events.Completions(events.Filter{}), events.Options{})
		if err != nil {
			return err
		}
		defer sub.Close()
		workers.Go(func() error {
			for event, err := range sub.All() {
				if err != nil {
					return err
				}
				if n, ok := nums.Load(event.Execution); ok {
					work.Received(n.(int))
				}
			}
			return nil
		})
	}
	handled := w.kind
	if handled.Name == "" {
		handled = noop
	}
	var lanes []worker.Lane
	for lane := range work.Lanes {
		lanes = append(lanes, worker.Lane{Name: id.LaneID(laneName(lane + 1))})
	}
	for i := range max(1, work.Workers) {
		cfg := worker.Config{
			Lanes:       lanes,
			Concurrency: work.Concurrency,
			FetchBatch:  work.Batch,
			SettleBatch: work.Batch,
			NoReconcile: i > 0, // once per process, as with a single worker
			Observer:    done,
			Log:         w.log,
		}
		if w.instrument != nil {
			if err := w.instrument(&cfg); err != nil {
				return err
			}
		}
		one, err := worker.New(w.eng, cfg)
		if err != nil {
			return err
		}
		worker.Handle(one, handled, func(_ context.Context, job worker.Job[args]) (struct{}, error) {
			if work.Received != nil || work.Committed != nil {
				nums.Store(job.ID, job.Args.Num)
			}
			if work.Started != nil {
				work.Started(job.Args.Num)
			}
			return struct{}{}, nil
		})
		workers.Go(func() error {
			// The worker does not report its start, so count the start as well.
			if work.Begun != nil {
				work.Begun()
			}
			return one.Run(stop)
		})
	}
	return workers.Wait()
}

// noop is the kind of all jobs. Creators write the encoding directly.
var noop = Kind{Name: kind}

// doneObserver reports how executions were settled.
type doneObserver struct {
	settled func(id.ExecutionID, worker.Report)
}

// BeginRun implements [worker.Observer].
func (h doneObserver) BeginRun(ctx context.Context, c *engine.Claimed) (context.Context, func(worker.Report)) {
	x := c.ID
	return ctx, func(report worker.Report) { h.settled(x, report) }
}

func (doneObserver) BeginPart(ctx context.Context, _ worker.Part) (context.Context, func(worker.PartReport)) {
	return ctx, nil
}
