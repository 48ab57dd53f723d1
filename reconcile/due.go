package reconcile

import (
	"context"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/upkeep"
)

// RunDue does the background work due at an instant of the database's clock, and returns the number of rows acted on.
// Call RunDue until it returns 0. The sweeps, which repair and tidy up, are left out. RunDue is for tests, and for
// programs with their own times for background work; others use [Reconciler.Run]. A Reconciler runs one RunDue at a
// time.
//
// Errors: as [upkeep.Upkeep.TakeJobs], and the errors of the jobs.
func (r *Reconciler) RunDue(ctx context.Context, now time.Time) (int, error) {
	// The last answer saves a question; the next question finds newer work.
	if acted, err := r.callDue(ctx, r.foreseen, now); err != nil || acted > 0 {
		r.foreseen = nil
		return acted, err
	}
	spec := upkeep.JobSpec{Holder: r.cfg.Instance} // only asks: does the jobs at once, held by others or not
	for _, j := range r.jobs {
		if !j.sweep {
			spec.Jobs = append(spec.Jobs, j.name)
		}
	}
	taken, err := r.eng.TakeJobs(ctx, spec)
	if err != nil {
		return 0, err
	}
	r.foreseen = make(map[upkeep.Job]time.Time)
	due := make(map[upkeep.Job]time.Time)
	for name, of := range taken.Jobs {
		switch {
		case of.Due.IsZero():
		case of.Due.After(taken.Now):
			r.foreseen[name] = of.Due
		default:
			due[name] = of.Due
		}
	}
	return r.callDue(ctx, due, taken.Now)
}

// callDue calls the jobs with work at an instant.
func (r *Reconciler) callDue(ctx context.Context, due map[upkeep.Job]time.Time, now time.Time) (acted int, err error) {
	for _, j := range r.jobs {
		if at, ok := due[j.name]; !ok || j.sweep || at.After(now) {
			continue
		}
		if j.batch == 0 {
			j.batch = r.cfg.Batch
		}
		n, _, err := j.exhaust(ctx, math.MaxInt64)
		if acted += n; err != nil {
			return acted, err
		}
	}
	return acted, nil
}
