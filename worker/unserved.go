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

// unservedAfter is how long work of a kind without a handler waits before the log tells of it, and how often it is
// looked for.
const unservedAfter = time.Minute

// A kindOnLane is what one warning is about.
type kindOnLane struct {
	lane id.LaneID
	kind string
}

// watchUnserved tells the log of work in the worker's lanes that it has no handler for and that nobody else has taken any
// of for a minute, until ctx ends: once for each kind, and again when somebody took some meanwhile.
func (r *run) watchUnserved(ctx context.Context) {
	filter := engine.WaitingFilter{Lanes: r.laneNames, Except: slices.Collect(maps.Keys(r.handlers))}
	var before, told map[kindOnLane]engine.WaitingKind
	var failing warn.Repeated
	for backoff.Wait(ctx, backoff.Spread(unservedAfter)) {
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		waiting, err := r.eng.WaitingKinds(calling, filter)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				failing.Log(r.cfg.Log, "cannot look for work that no worker takes; it is tried again: check the database and the rights of its role", "error", err)
			}
			continue
		}
		last, lastTold := before, told
		before, told = make(map[kindOnLane]engine.WaitingKind), make(map[kindOnLane]engine.WaitingKind)
		for _, w := range waiting {
			about := kindOnLane{w.Lane, w.Kind}
			before[about] = w
			if !sameNext(last[about], w) {
				continue
			}
			told[about] = w
			if !sameNext(lastTold[about], w) {
				r.cfg.Log.Warn("no worker takes work of a kind that this one has no handler for: start a worker that handles it, or cancel the work",
					"lane", w.Lane, "kind", w.Kind, "waiting", w.Waiting, "since", w.Since)
			}
		}
	}
}

// sameNext: of the kind nothing was taken between the two.
func sameNext(a, b engine.WaitingKind) bool { return a.Next == b.Next && a.Since.Equal(b.Since) }
