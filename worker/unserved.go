package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// unservedAfter is the interval of the check for work without a handler, and how long such work waits before it is logged.
const unservedAfter = time.Minute

// kindOnLane is the subject of one warning.
type kindOnLane struct {
	lane id.LaneID
	kind string
}

// watchUnserved logs work in the worker's lanes without a handler here, without a registered worker for its kind, and
// unclaimed for a minute, until ctx ends. watchUnserved logs each kind once, and again if some was claimed in between.
func (r *run) watchUnserved(ctx context.Context) {
	filter := engine.WaitingFilter{Lanes: r.laneNames, Except: slices.Collect(maps.Keys(r.handlers))}
	var before, logged map[kindOnLane]engine.WaitingKind
	var failing warn.Repeated
	for backoff.Wait(ctx, backoff.Spread(unservedAfter)) {
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		waiting, err := r.settling.WaitingKinds(calling, filter)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				failing.Log(r.cfg.Log, "cannot look for work that no worker takes; retrying: check the database and the rights of its role", "error", err)
			}
			continue
		}
		last, lastLogged := before, logged
		before, logged = make(map[kindOnLane]engine.WaitingKind), make(map[kindOnLane]engine.WaitingKind)
		for _, w := range waiting {
			about := kindOnLane{w.Lane, w.Kind}
			before[about] = w
			if !sameNext(last[about], w) {
				continue
			}
			if !sameNext(lastLogged[about], w) {
				served, err := r.served(ctx, about)
				if err != nil {
					failing.Log(r.cfg.Log, "cannot look for workers that handle a kind; retrying: check the database and the rights of its role", "error", err)
				}
				if served {
					continue
				}
				r.cfg.Log.Warn("no worker takes work of a kind that this one has no handler for: start a worker that handles it, or cancel the work",
					"lane", w.Lane, "kind", w.Kind, "waiting", w.Waiting, "since", w.Since)
			}
			logged[about] = w
		}
	}
}

// served reports whether a live worker is registered for the kind on the lane. The work then waits until this worker
// has a free handler. Drained workers don't count.
func (r *run) served(ctx context.Context, about kindOnLane) (bool, error) {
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for after := ""; ; {
		page, err := r.settling.ListWorkers(calling, engine.WorkerFilter{Lane: about.lane}, after, engine.MaxPage)
		if err != nil {
			return false, err
		}
		for _, w := range page.Items {
			if w.DrainedSince.IsZero() && !w.Stopping && slices.Contains(w.Kinds, about.kind) {
				return true, nil
			}
		}
		if after = page.Next; after == "" {
			return false, nil
		}
	}
}

// sameNext reports whether no work of the kind was taken between a and b.
func sameNext(a, b engine.WaitingKind) bool { return a.Next == b.Next && a.Since.Equal(b.Since) }
