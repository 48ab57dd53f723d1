package contender

import (
	"context"

	"github.com/flowfabric/flowfabric-go/engine"
)

// Args is the input of a job, from which a [Kind] takes keys and tenants.
type Args = args

// Kind declares jobs of the library's worker as a program would, with limits and tenants.
type Kind = engine.Kind[Args, struct{}]

// As returns the worker with jobs of another kind, on the same database. note is on the limits or tenants. The jobs are
// specs of the kind, so only the number and the priority of a [Job] count.
func (w *Worker) As(note string, kind Kind) *Worker {
	return &Worker{ours: w.ours, as: note, kind: kind}
}

// Insert implements [Contender].
func (w *Worker) Insert(ctx context.Context, jobs []Job) error {
	if w.kind.Name == "" {
		return w.ours.Insert(ctx, jobs)
	}
	specs := make([]engine.ExecutionSpec, len(jobs))
	for i, job := range jobs {
		specs[i] = w.kind.Spec(job.args())
		specs[i].Priority = job.Priority
	}
	return w.create(ctx, specs)
}
