package operator

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// BackgroundJob is a part of the background work with the process that does it.
type BackgroundJob struct {
	Name      string
	Holder    id.WorkerInstanceID // the process, or the last one
	Held      bool                // false: the next process that asks takes the job
	HeldUntil time.Time           // renewed every second or so; zero: released
	Succeeded time.Time           // end of the last call without an error; zero: none was reported
	Failed    time.Time           // end of the last failed call; zero: none was reported
	Error     string              // of the last failed call, at most 1,024 bytes
	Due       time.Time           // when there is work, past if overdue; zero: there is none, or the job looks for work itself
}

// Jobs iterates over the background jobs with a holder so far, by name. Without any, no worker or reconciler has run on the
// database. The holder reports the ends of calls about once a second. A job without work is not called.
//
// One statement; takes no locks.
func Jobs(ctx context.Context, eng *engine.Engine) iter.Seq2[BackgroundJob, error] {
	return func(yield func(BackgroundJob, error) bool) {
		c := core.Of(eng)
		rows, err := c.Q.ListJobs(ctx, c.Reader(), db.ListJobsParams{NowMs: c.NowMs(), LookAfterMs: c.LookAfterMs()})
		if err != nil {
			yield(BackgroundJob{}, core.Wrap("list jobs", err))
			return
		}
		for i := range rows {
			row := &rows[i]
			job := BackgroundJob{
				Name: row.Name, Holder: id.WorkerInstanceID(row.Holder), Held: row.Held, Error: row.Error,
				Succeeded: core.OptionalTime(row.SucceededAtMs), Failed: core.OptionalTime(row.FailedAtMs),
			}
			if row.HeldUntilMs > 0 {
				job.HeldUntil = time.UnixMilli(row.HeldUntilMs)
			}
			if row.DueAtMs != math.MaxInt64 {
				job.Due = time.UnixMilli(row.DueAtMs)
			}
			if !yield(job, nil) {
				return
			}
		}
	}
}
