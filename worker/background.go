package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/flowfabric/flowfabric-go/operator"
)

const (
	backgroundInterval = time.Minute      // between two checks for background work
	backgroundRecheck  = 10 * time.Second // until a second check, longer than jobs pause when their process is killed
	backgroundPause    = 10 * time.Minute // between two warnings of missing background work
)

// background does the background work, or warns if no other process does it.
func (r *run) background(ctx context.Context) {
	switch {
	case r.reconcile != nil:
		r.reconcile(ctx, r)
	case r.cfg.NoReconcile:
		r.watchBackground(ctx)
	}
}

// watchBackground warns if two checks in a row find no process that does background work, and every ten minutes until a check
// finds one. A check is one read. A failed one changes nothing, since the worker's other calls report outages.
func (r *run) watchBackground(ctx context.Context) {
	timer := time.NewTimer(backgroundInterval)
	defer timer.Stop()
	missing, warnedAt := false, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := backgroundInterval
		does, err := r.settling.backgroundRuns(ctx)
		switch {
		case err != nil:
			r.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "cannot check for background work", slog.Any("error", err))
		case does:
			missing, warnedAt = false, time.Time{}
		case !missing:
			missing, next = true, backgroundRecheck
		case time.Since(warnedAt) >= backgroundPause:
			warnedAt = time.Now()
			r.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "no process does the background work, so lost leases, retries and delays don't return "+
				"to their lanes: run a worker without NoReconcile, or a reconciler; ff job list shows the jobs",
				slog.String("instance", string(r.cfg.Instance)))
		}
		timer.Reset(next)
	}
}

// backgroundRuns reports whether a process holds a background job.
func (e onEngine) backgroundRuns(ctx context.Context) (bool, error) {
	for job, err := range operator.Jobs(ctx, e.Engine) {
		if err != nil || job.Held {
			return job.Held, err
		}
	}
	return false, nil
}
