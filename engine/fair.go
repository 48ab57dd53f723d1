package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// fairWork returns the work of a creation that takes turns, with its place.
func (c *creation) fairWork() *core.FairWork {
	return &core.FairWork{
		ID: c.id, Minted: c.minted, Lane: c.lane, Priority: c.priority, Namespace: c.namespace,
		Tenant: c.fair.Tenant, Weight: c.fair.Weight, FairPlace: c.place,
	}
}

// placeFair gives the fair ones of creations their places in the queue, in order. If none is fair it does nothing.
func (e *Engine) placeFair(ctx context.Context, conn db.DBTX, creations []creation) error {
	var work []*core.FairWork
	var of []*creation
	for i := range creations {
		if c := &creations[i]; !c.fair.IsZero() && !c.refused {
			work, of = append(work, c.fairWork()), append(of, c)
		}
	}
	err := e.c.PlaceFair(ctx, conn, work)
	for n, c := range of {
		c.place = work[n].FairPlace
	}
	return err
}

// recordPlaces returns the steps that record the places of creations, behind the one that inserts them.
func (e *Engine) recordPlaces(ctx context.Context, creations []creation) []core.Step {
	var work []*core.FairWork
	for i := range creations {
		if c := &creations[i]; c.place.Ns != 0 {
			work = append(work, c.fairWork())
		}
	}
	return e.c.RecordPlaces(ctx, work)
}

// announce notifies that an execution is claimable.
func (c *creation) announce(due *core.Notifications) {
	if c.place.Near {
		due.Resumed(c.lane)
	} else {
		due.Lane(c.lane)
	}
}
