package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// fairWork returns the work of a fair creation, with the place.
func (c *creation) fairWork() *core.FairWork {
	return &core.FairWork{
		ID: c.id, Minted: c.minted, Lane: c.lane, Priority: c.priority, Namespace: c.namespace,
		Tenant: c.fair.Tenant, Weight: c.fair.Weight, FairPlace: c.place,
	}
}

// placeFair gives fair creations their places in the queue, in order.
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

// recordPlaces returns the steps for recording the places of creations, to run after the insert.
func (e *Engine) recordPlaces(ctx context.Context, creations []creation) []core.Step {
	var work []*core.FairWork
	for i := range creations {
		if c := &creations[i]; c.place.Ns != 0 {
			work = append(work, c.fairWork())
		}
	}
	return e.c.RecordPlaces(ctx, work)
}

// announce notifies the lane's workers of a claimable execution.
func (c *creation) announce(due *core.Notifications) {
	if c.place.Near {
		due.Resumed(c.lane)
	} else {
		due.Lane(c.lane)
	}
}
