package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
)

// unknownLanes returns the lanes of creations, sorted, without the lanes registered before.
func (e *Engine) unknownLanes(creations []creation) []string {
	var lanes []string
	for i := range creations {
		lane := creations[i].lane
		if (i == 0 || lane != creations[i-1].lane) && !e.lanes.has(lane) && !slices.Contains(lanes, lane) {
			lanes = append(lanes, lane)
		}
	}
	slices.Sort(lanes)
	return lanes
}

// A registration has the lanes, the period and the limits for creations to register, each once for a database.
type registration struct {
	lanes  []string // sorted
	period int64    // the shortest retention of the policies, 0 if registered before
	limits map[core.LimitID]core.LimitRule
}

func (r *registration) empty() bool { return len(r.lanes) == 0 && r.period == 0 && len(r.limits) == 0 }

// unregistered returns the registration of creations whose limits were checked.
func (e *Engine) unregistered(creations []creation) registration {
	return registration{e.unknownLanes(creations), e.periods.missingBelow(shortestOf(creations)), undeclaredOf(creations)}
}

// register registers lanes and a period, and declares limits. [Engine.remember] follows after the commit.
func (e *Engine) register(ctx context.Context, tx db.DBTX, r registration) error {
	if len(r.lanes) > 0 {
		if err := e.c.Q.EnsureLanes(ctx, tx, db.EnsureLanesParams{LaneIDs: r.lanes, NowMs: e.c.NowMs()}); err != nil {
			return err
		}
	}
	if r.period != 0 {
		if err := e.c.Q.EnsureRetentionPeriod(ctx, tx, r.period); err != nil {
			return err
		}
	}
	return e.c.DeclareLimits(ctx, tx, r.limits)
}

// remember spares the next creations of this process a committed registration.
func (e *Engine) remember(r registration) {
	e.lanes.add(r.lanes)
	e.periods.remember(r.period)
	for limit, rule := range r.limits {
		e.c.Limits.Add(limit, rule, e.c.ProcessTime())
	}
}

// creationMemory has the steps of creations, and the rows known to exist: creations need not write known rows again.
type creationMemory struct {
	atCreation []creationStep
	lanes      known[string]
	periods    shortestPeriod
	keyRows    known[gate.ID] // keys of limits with a row at some time; a job deletes idle rows
}

// maxKnown is the number of values in a [known] set.
const maxKnown = 100_000

// known is a set of values with a row. Writing a row again changes nothing, so a full set is simply cleared.
type known[V comparable] struct {
	mu     sync.RWMutex
	values map[V]struct{}
}

func (k *known[V]) has(value V) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	_, known := k.values[value]
	return known
}

func (k *known[V]) add(values []V) {
	if len(values) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = make(map[V]struct{}, len(values))
	}
	for _, value := range values {
		if len(k.values) >= maxKnown {
			clear(k.values)
		}
		k.values[value] = struct{}{}
	}
}

func (k *known[V]) forget(values []V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, value := range values {
		delete(k.values, value)
	}
}
