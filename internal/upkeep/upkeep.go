// Package upkeep has the background operations of a database, which package reconcile calls in a loop.
package upkeep

import (
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxSweep is the largest batch of a sweep.
const MaxSweep = core.MaxSweep

// Upkeep has the background operations of a database. Nothing else releases expired leases, promotes delayed
// executions, enforces deadlines or repairs the queue. Each operation acts on at most batch items, 1 to
// [engine.MaxBatch], and returns how many: if the number is at least batch, call the operation again. Operations skip
// locked rows instead of waiting, and may be repeated and run in any number of processes.
type Upkeep struct {
	eng *engine.Engine
	c   *core.Core
	*memory
}

// memory is the state of an engine's background operations.
type memory struct {
	stalled   stalledEvents
	schedules scheduleMemory
	sweepPositions
	retentionMemory
	fairSweep fairSweep
	gates     gateMemory
	keySweep  keySweep
}

func newMemory() *memory {
	return &memory{retentionMemory: retentionMemory{deleting: make(chan struct{}, 1)}}
}

// Of returns the background operations on an engine, bound to the same pool or transaction.
func Of(eng *engine.Engine) *Upkeep {
	c := core.Of(eng)
	return &Upkeep{eng, c, core.Memory(c, newMemory)}
}

// shortWait returns u for transactions that must not wait: see [core.Core.ShortWait].
func (u *Upkeep) shortWait() *Upkeep {
	bound := *u
	bound.c = u.c.ShortWait()
	return &bound
}
