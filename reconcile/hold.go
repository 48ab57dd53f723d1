package reconcile

import (
	"context"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
)

// Hold makes a process the holder of a job of the caller's own, such as a report, or extends its hold, and returns whether
// the process is the holder. Others take the job at the end of the hold or after [Release]. [operator.Jobs] lists the job.
// The name has a namespace ("app.report"), and the instance is used for nothing else.
//
// The hold only avoids duplicate work: a holder that was stopped for longer than its hold may work beside the next one.
//
// Errors: [fferr.ErrInvalidInput], also for a hold below 1 ms; [fferr.ErrReadOnly]. Transaction: one statement without lock
// waits. Safe to repeat.
func Hold(ctx context.Context, eng *engine.Engine, job string, instance id.WorkerInstanceID, hold time.Duration) (bool, error) {
	const op = "hold a job"
	if !strings.Contains(job, ".") {
		return false, core.Wrap(op, &fferr.InputError{Field: "job", Reason: `has no namespace, as in "app.report"`})
	}
	if hold < time.Millisecond {
		return false, core.Wrap(op, &fferr.InputError{Field: "hold", Reason: "is below 1ms"})
	}
	name := upkeep.Job(job)
	taken, err := upkeep.Of(eng).TakeJobs(ctx, upkeep.JobSpec{Holder: instance, Hold: hold, Jobs: []upkeep.Job{name}})
	if err != nil {
		return false, core.Wrap(op, err)
	}
	return taken.Jobs[name].Ours, nil
}

// Release releases all jobs of a process held by [Hold], for the next process that asks.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement without lock waits. Safe to repeat.
func Release(ctx context.Context, eng *engine.Engine, instance id.WorkerInstanceID) error {
	return core.Wrap("release jobs", upkeep.Of(eng).ReturnJobs(ctx, instance))
}
