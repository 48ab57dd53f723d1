package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/observe"
)

// observed counts equal events to report after a commit. The count of an [observe.Created] counts its executions.
type observed map[observe.Event]int

// NoteCreated notes n new executions of a lane and kind.
func (c *Core) NoteCreated(due *Notifications, lane, kind string, n int) {
	if c.Observer != nil {
		due.observe(observe.Created{Lane: id.LaneID(lane), Kind: kind}, n)
	}
}

// NoteSignalled notes the delivery of a signal.
func (c *Core) NoteSignalled(due *Notifications, name string, duplicate bool) {
	if c.Observer != nil {
		due.observe(observe.Signalled{Name: name, Duplicate: duplicate}, 1)
	}
}

func (n *Notifications) observe(e observe.Event, count int) {
	if n.observed == nil {
		n.observed = make(observed)
	}
	n.observed[e] += count
}

func (n *Notifications) observeAll(events observed) {
	for e, count := range events {
		n.observe(e, count)
	}
}

// forget takes back events, of a savepoint that was rolled back.
func (n *Notifications) forget(events observed) {
	for e, count := range events {
		if n.observed[e] -= count; n.observed[e] <= 0 {
			delete(n.observed, e)
		}
	}
}

// report reports the events of a transaction to the observer.
func (c *Core) report(ctx context.Context, due *Notifications) {
	if c.Observer == nil {
		return
	}
	for e, count := range due.observed {
		if created, ok := e.(observe.Created); ok {
			created.Count = count
			c.Observe(ctx, created)
			continue
		}
		for range count {
			c.Observe(ctx, e)
		}
	}
}

// Observe passes an event to the observer, which must not be nil. A panic is logged.
func (c *Core) Observe(ctx context.Context, e observe.Event) {
	defer c.observerPanics(ctx)
	c.Observer.Observe(ctx, e)
}
