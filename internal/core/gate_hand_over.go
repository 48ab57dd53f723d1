package core

import (
	"context"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/gate"
)

// HandOver admits waiting executions to the places of completed ones, in the transaction of the completions. So short
// work does not wait for the next pass of the gate.
type HandOver struct {
	c      *Core
	params db.FreePlacesParams
	admits bool // admit too: some execution waited lately
	freed  db.FreePlacesRow
	rows   []db.AdmitNextRow
}

// awaitedFor is how long after a wait completions look for executions to admit. Otherwise each completion under limits
// with free places would pay for the search.
const awaitedFor = time.Second

// awaitedPlaces notes when this process last knew of an execution waiting for a place.
type awaitedPlaces struct {
	mu sync.Mutex
	at time.Time
}

// AwaitedPlacesOf returns the note of an engine, shared by all values bound to transactions and pools.
func AwaitedPlacesOf(c *Core) *awaitedPlaces {
	return Memory(c, func() *awaitedPlaces { return &awaitedPlaces{} })
}

func (a *awaitedPlaces) Note() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Now()
}

func (a *awaitedPlaces) lately() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.at) < awaitedFor
}

// HandOverOf returns the [HandOver] of completions, nil if none is known to have limits. Callers' transactions use
// none: the lock of a limit would last until their end.
func (c *Core) HandOverOf(n int, lease func(int) id.Fence) *HandOver {
	var h *HandOver
	for i := range n {
		f := lease(i)
		for _, g := range c.Leases.GatesOf(f) {
			if h == nil {
				h = &HandOver{c: c, admits: AwaitedPlacesOf(c).lately(), params: db.FreePlacesParams{NowMs: c.NowMs()}}
			}
			x := f.Execution
			h.params.GatePartitionKeys = append(h.params.GatePartitionKeys, GatePartition(gate.ID(g.Bytes)))
			h.params.GateIDs = append(h.params.GateIDs, g)
			h.params.PartitionKeys = append(h.params.PartitionKeys, x.Partition())
			h.params.ExecutionIDs = append(h.params.ExecutionIDs, PgUUID(x.UUID()))
		}
	}
	return h
}

// Steps returns the statements to run after the completions. then is called after the last one.
func (h *HandOver) Steps(ctx context.Context, then func()) []Step {
	steps := []Step{func(conn db.DBTX) (err error) {
		if h.freed, err = h.c.Q.FreePlaces(ctx, conn, h.params); err == nil && !h.admits {
			then()
		}
		return err
	}}
	if !h.admits {
		return steps
	}
	return append(steps, func(conn db.DBTX) (err error) {
		h.rows, err = h.c.Q.AdmitNext(ctx, conn, db.AdmitNextParams{
			GatePartitionKeys: h.params.GatePartitionKeys, GateIDs: h.params.GateIDs, MaxItems: MaxBatch, NowMs: h.c.NowMs(),
		})
		if err == nil {
			then()
		}
		return err
	})
}

// Announce notifies the lanes of admitted executions, except executions claimed by the same transaction, and the gate
// if a pass is needed.
func (h *HandOver) Announce(due *Notifications, claimed []db.ClaimFromHeadRow) {
	if h.freed.Awaited {
		AwaitedPlacesOf(h.c).Note()
	}
	if h.freed.Undone || h.freed.Awaited && !h.admits {
		due.Gated()
	}
	taken := make(map[[16]byte]bool, len(claimed))
	for i := range claimed {
		taken[claimed[i].ExecutionID.Bytes] = true
	}
	for _, row := range h.rows {
		switch {
		case row.Undone:
			due.Gated()
		case !taken[row.ExecutionID.Bytes]:
			due.Resumed(row.LaneID)
		}
	}
}
